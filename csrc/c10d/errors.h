// SPDX-License-Identifier: Apache-2.0
// Turns braid's errors into torch's. A Status becomes a c10 exception, which Python sees as ValueError,
// NotImplementedError or torch.distributed.DistBackendError.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid::adapter {

// The ranks of the group, and their numbers in the whole job.
struct Members {
  int rank = 0;
  std::vector<int64_t> global_ranks;  // by group rank; empty if the group is the whole job

  int64_t global_rank(int group_rank) const;
};

// The message also gives the global ranks of the ranks that it names, if they differ. REQUIRES: !status.ok().
std::exception_ptr exception_of(const Status& status, const Members& members);
// Throws exception_of(status) unless ok.
void raise_if_failed(const Status& status, const Members& members);

}  // namespace braid::adapter

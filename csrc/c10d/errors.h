// SPDX-License-Identifier: Apache-2.0
// Where braid's errors become torch's: a Status turns into the c10 exception that Python knows as ValueError,
// NotImplementedError or torch.distributed.DistBackendError.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid::adapter {

// Who this rank and its peers are, in the group and in the whole job.
struct Members {
  int rank = 0;
  std::vector<int64_t> global_ranks;  // by group rank; empty when the group is the whole job

  int64_t global_rank(int group_rank) const;
};

// Ranks that the message names are translated to global ones where they differ. REQUIRES: !status.ok().
std::exception_ptr exception_of(const Status& status, const Members& members);
// Throws exception_of(status) unless ok.
void raise_if_failed(const Status& status, const Members& members);

}  // namespace braid::adapter

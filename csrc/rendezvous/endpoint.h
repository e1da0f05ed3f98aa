// SPDX-License-Identifier: Apache-2.0
// What a rank tells the others about itself in a rendezvous.
#pragma once

#include <string>

#include "base/status.h"
#include "options/options.h"

namespace braid {

struct RankEndpoint {
  std::string settings;  // what must be equal on all ranks, in words
  std::string host;      // equal for ranks that may share memory
  std::string cores;     // that it may run on, as cores.h writes them
  std::string shm;       // how to reach its shared memory; empty: not offered
  std::string tcp;       // its listener; empty: not offered
  std::string nonce;     // random, of this rendezvous alone
  std::string rates;     // of its host's NIC, where a file states the links; else empty
  std::string place;     // host and process, for whoever reads of this rank: "node7 (pid 4711)"
  std::string secret;    // rank 0's endpoint: what members prove to know when they connect

  bool operator==(const RankEndpoint&) const = default;
};

std::string to_text(const RankEndpoint& endpoint);
Result<RankEndpoint> endpoint_from_text(const std::string& text);

// Boot id and IPC namespace of this machine, or the override.
Result<std::string> host_identity(const Options& options);
// The host by its name, or by the override, and the process.
std::string own_place(const Options& options);
// The settings marked (*) in options.h, and the version of the wire format.
std::string shared_settings(const Options& options);

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "links/tuning.h"

#include <algorithm>
#include <utility>

namespace braid {
namespace {

constexpr Link kBoard{1.3e-6, kMemory_s_per_byte};  // memory of one host
// The processor time that a message takes in TCP, on either side.
constexpr double kNicOverhead_s = 3e-5;
// The margin (TunerOptions) of a family over later families of the table: links are shared and their rates noisy.
constexpr double kMargin = 0.05;

bool has_board(const Topology& topology) {
  return topology.host_count() == 1 && topology.within_host() != kWithinHost;
}

}  // namespace

// Ranks that share a core run one after another. A round needs all ranks, and each rank waits for the others of
// its core. That alpha grows with the square is fitted to measurements with two and four ranks per core.
Link link_inside(const Inside& inside) {
  if (!inside.board) return kWithinHost;
  const double sharers = std::max(inside.ranks_per_core, 1.0);
  return {kBoard.alpha_s * sharers * sharers, kBoard.beta_s_per_byte * sharers};
}

Link link_within_hosts(double ranks_per_core) {
  const double sharers = std::max(ranks_per_core, 1.0);
  return {kWithinHost.alpha_s * sharers, kWithinHost.beta_s_per_byte * sharers};
}

Result<std::unique_ptr<Tuner>> tuner_for(Topology topology, const Options& options) {
  TunerOptions tuner;
  tuner.algorithm = options.algorithm;
  const double alone_s_per_byte = has_board(topology) ? kBoard.beta_s_per_byte : kWithinHost.beta_s_per_byte;
  const double sharers = std::max(topology.within_host().beta_s_per_byte / alone_s_per_byte, 1.0);
  tuner.rates.sharers = sharers;
  if (has_board(topology)) {
    tuner.rates.writes_once = true;
  } else {  // boards cut operations in another way, and their constants were fitted to whole operations
    tuner.rates.reduce_s_per_byte = topology.work_s_per_byte("reduce", tuner.rates.reduce_s_per_byte);
    tuner.chunk_bytes = options.chunk_bytes;
    tuner.window = options.window;
  }
  tuner.rates.overhead_s *= sharers;
  tuner.rates.reduce_s_per_byte *= sharers;
  if (topology.host_count() > 1) {
    tuner.rates.nic_overhead_s = kNicOverhead_s;
    tuner.margin = kMargin;
  }
  auto made = Tuner::create(std::move(topology), std::move(tuner));
  if (!made.ok()) return made.status().within("BRAID_ALGORITHM");
  return made;
}

}  // namespace braid

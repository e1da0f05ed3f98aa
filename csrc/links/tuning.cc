// SPDX-License-Identifier: Apache-2.0
#include "links/tuning.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/cache.h"
#include "cost/boards.h"
#include "executor/board_plan.h"
#include "transport/shm/board_layout.h"

namespace braid {
namespace {

constexpr Link kBoard{1.3e-6, kMemory_s_per_byte};  // memory of one host
// The processor time that a message takes in TCP, on either side.
constexpr double kNicOverhead_s = 3e-5;
// The margin (TunerOptions) of an algorithm over later algorithms of the table: links are shared and their rates noisy.
constexpr double kMargin = 0.05;

bool has_board(const Topology& topology) {
  return topology.host_count() == 1 && topology.within_host() != kWithinHost;
}

// A usual machine: what memory takes if nobody has measured it.
constexpr double kTouch_s_per_byte = 1.2e-11;
constexpr double kFetch_s_per_byte = 4e-11;

// How long a message of no bytes takes over boards, while its ranks do not sleep. Ranks that share a core wait for each
// other. Fitted to operations of 64 KiB with one, two and four ranks per core.
double round_s(double sharers) { return sharers > 1 ? 0.9e-6 * sharers * sharers : 0.6e-6; }

// Predicts times over boards as the ranks of this topology make them. Takes it that all ranks can read each other's
// memory, which the topology does not tell.
std::optional<double> on_boards_s(const VerifiedSchedule& verified, int64_t bytes, const BoardRates& rates) {
  const Schedule& schedule = verified.schedule();
  const bool crowded = rates.sharers > 1;
  const BoardPlan plan =
      plan_for_boards(verified, {shm::bounce_bytes_for(schedule.nodes(), crowded), crowded, true});
  if (!plan.possible) return std::nullopt;
  BoardCut cut{static_cast<int64_t>(plan.chunk_bytes), plan.stride};
  if (plan.lend_from != Layout::kNever) cut.lend_from = static_cast<int64_t>(plan.lend_from);
  return predict_on_boards_s(schedule, bytes, cut, rates);
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
    const BoardRates rates{topology.work_s_per_byte("touch", kTouch_s_per_byte),
                           topology.work_s_per_byte("fetch", kFetch_s_per_byte), round_s(sharers), sharers,
                           static_cast<double>(largest_cache_bytes())};
    tuner.reported_s = [rates](const VerifiedSchedule& schedule, int64_t bytes) {
      return on_boards_s(schedule, bytes, rates);
    };
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

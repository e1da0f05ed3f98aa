// SPDX-License-Identifier: Apache-2.0
// Picks the family for a collective: draws and proves the candidates, prices them, takes the cheapest, and keeps
// why. Every input is shared by all ranks, so they choose alike without talking.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "codec/codec.h"
#include "cost/cost.h"
#include "topology/topology.h"
#include "tuner/candidate.h"
#include "tuner/forced.h"
#include "tuner/schedule_cache.h"

namespace braid {

struct TunerOptions {
  // Forces families: "ring", or "all_reduce=ring,broadcast=binomial". See forced.h.
  std::string algorithm;
  // One weight per node of the topology for the families that take shares; those of hosts get the sums of their
  // ranks', and aggregators their own. Empty: whichever take less time of those that shares_to_try() finds.
  std::vector<uint64_t> shares;
  // How whoever runs the schedule cuts an operation: the size aimed at for a chunk of one segment, 0 for one that
  // suits the NICs (cost/flight.h), none for not at all. And how many segments it has under way.
  std::optional<int64_t> chunk_bytes;
  int window = 4;
  // How much less a family must be predicted to take than those before it in the table, the first of which is
  // sound for any size: what the model does not know may cost that much. 0.1: ten per cent.
  double margin = 0;
  Rates rates;
};

struct Choice {
  std::string family;
  double predicted_s = 0;
  std::vector<Candidate> runners_up;  // cheapest first
  std::vector<uint64_t> shares;       // one per owner, see PlanOptions; empty: equal
  std::string reason;       // one line: "all_reduce of 1 MiB on 4 ranks: direct 1.9 ms, then ring 2.1 ms"
  SharedSchedule schedule;  // to be run
  int64_t chunk_bytes = 0;  // to cut it by; 0: not at all
};

// The topology's nodes after the ranks are aggregators: then only families with work for them are candidates.
// How much each gets follows from the shares, and may be nothing.
//
// `bytes` as in predict_s(): the whole vector, or all ranks' blocks. Sums, averages and products of 16-bit floats
// go only to schedules that round every result once (all contributions meet in one reduce step), unless forced:
// the average of 40000 and 40000 is 40000 in float16, though their sum is not a float16.
//
// With a codec, messages between hosts are encoded: only schedules in which every sum has one owner are candidates
// (verify/owners.h), which an all_reduce or a reduce_scatter on several hosts may have.
//
// kInvalidArgument for an impossible collective or one of more ranks than the topology has nodes, negative bytes,
// negative chunks, window < 1, shares that do not fit, an unknown name in options.algorithm, or a forced family
// without work for aggregators, or owners for a codec, when there are any; kUnsupported when no family of the
// collective has any.
Result<Choice> choose(const Collective& collective, DType dtype, ReduceOp op, int64_t bytes,
                      const Topology& topology, const TunerOptions& options, ScheduleCache& cache,
                      const std::optional<Codec>& codec = std::nullopt);

// Remembers choices. Thread-safe.
class Tuner {
 public:
  // kInvalidArgument for an unknown name in options.algorithm.
  static Result<std::unique_ptr<Tuner>> create(Topology topology, TunerOptions options);

  // Sizes between two powers of two share a choice, made for the larger. One look-up when it was made before.
  Result<std::shared_ptr<const Choice>> choose(const Collective& collective, DType dtype, ReduceOp op,
                                               int64_t bytes, const std::optional<Codec>& codec = std::nullopt);
  // The same choice, made for the size class of `bytes`, with what all candidates would take for `exact_bytes`. So
  // a runner-up may be cheaper than the family. The reason is that of the choice, and has the times of its class.
  Result<Choice> explain(const Collective& collective, DType dtype, ReduceOp op, int64_t bytes,
                         int64_t exact_bytes, const std::optional<Codec>& codec = std::nullopt);
  ScheduleCache& schedules() { return cache_; }
  const Topology& topology() const { return topology_; }

 private:
  // Collective, must every result be rounded once, size class, codec's kind (-1: none) and part.
  using Key = std::tuple<CollectiveKind, int, Node, bool, int, int, uint32_t>;

  Tuner(Topology topology, TunerOptions options) : topology_(std::move(topology)), options_(std::move(options)) {}

  const Topology topology_;
  const TunerOptions options_;
  ScheduleCache cache_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const Choice>> choices_;  // guarded by mutex_
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// Picks the algorithm for a collective. Draws and verifies the candidates, predicts their times, takes the cheapest,
// and keeps the reason. All ranks have the same inputs, so they make the same choice without messages.
#pragma once

#include <cstdint>
#include <functional>
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
  // Forces algorithms: "ring", or "all_reduce=ring,broadcast=binomial". See forced.h.
  std::string algorithm;
  // One weight per node of the topology, for algorithms that take shares. In hierarchical algorithms a host gets the
  // sum of its ranks' weights. Empty: the set of shares_to_try() that takes least time.
  std::vector<uint64_t> shares;
  // How the executor cuts an operation. chunk_bytes: the size to aim at for a chunk of one segment; 0 for the size
  // that suits the NICs (cost/flight.h); none: the operation is not cut. window: how many segments are in flight.
  std::optional<int64_t> chunk_bytes;
  int window = 4;
  // The table of algorithms is read from the top; its first row is sound for any size. A later row replaces the
  // choice so far only if its predicted time is shorter by this fraction (0.1: ten per cent). Costs that the model
  // does not know may be that large.
  double margin = 0;
  Rates rates;
  // Predicts the times that a Choice reports, where predict_s() is not good at times. Nothing: predict_s() holds for
  // this schedule. predict_s() still makes the choice. Its constants are the same in every run, so the order of
  // additions is, too; `reported_s` may depend on measurements.
  std::function<std::optional<double>(const VerifiedSchedule&, int64_t bytes)> reported_s;
};

struct Choice {
  std::string algorithm;
  double predicted_s = 0;
  std::vector<Candidate> runners_up;  // cheapest first; with reported_s perhaps cheaper than the choice.
  std::vector<uint64_t> shares;       // one per owner, see PlanOptions; empty: equal
  std::string reason;  // one line: "all_reduce of 1 MiB on 4 ranks: direct 1.9 ms, then ring 2.1 ms"
  VerifiedSchedulePtr schedule;
  int64_t chunk_bytes =
      0;  // the size to aim at for a chunk of one segment; 0: priced uncut, the caller has a default
};

// The topology's nodes after the ranks are aggregators. If there are any, only algorithms that take aggregators are
// candidates. The shares say how much work each aggregator gets; it may be nothing.
//
// `bytes` is the size of the whole vector, or of all ranks' blocks, as in predict_s(). For sums, averages and
// products of narrow floats (16 bits or less), candidates must round every result once: all contributions meet in
// one reduce step. For example, the average of 40000 and 40000 is 40000 in float16, but their sum is not a
// float16. A forced algorithm need not do so.
//
// With a codec, messages between hosts are encoded. Then only schedules in which every sum has one owner are
// candidates (verify/owners.h). Only an all_reduce or a reduce_scatter on several hosts can have such schedules.
//
// kInvalidArgument for
//   - an impossible collective, or more ranks than the topology has nodes;
//   - negative bytes, negative chunk_bytes, window < 1, or shares that do not fit;
//   - an unknown name in options.algorithm;
//   - aggregators, if the forced algorithm takes none;
//   - a codec, if no candidate's sums have one owner each.
// kUnsupported for aggregators, if no algorithm of the collective takes any.
Result<Choice> choose(const Collective& collective, DType dtype, ReduceOp op, int64_t bytes,
                      const Topology& topology, const TunerOptions& options, ScheduleCache& cache,
                      const std::optional<Codec>& codec = std::nullopt);

// Remembers choices. Thread-safe.
class Tuner {
 public:
  // kInvalidArgument for an unknown name in options.algorithm.
  static Result<std::unique_ptr<Tuner>> create(Topology topology, TunerOptions options);

  // All sizes between two powers of two share a choice, which is made for the larger power. A choice that was made
  // before costs one look-up.
  Result<std::shared_ptr<const Choice>> choose(const Collective& collective, DType dtype, ReduceOp op,
                                               int64_t bytes, const std::optional<Codec>& codec = std::nullopt);
  // Returns the choice for the size class of `bytes`, with the times of all candidates predicted for
  // `exact_bytes`. So a runner-up may be cheaper than the chosen algorithm. `reason` is the choice's own: it has the
  // times for the size class.
  Result<Choice> explain(const Collective& collective, DType dtype, ReduceOp op, int64_t bytes,
                         int64_t exact_bytes, const std::optional<Codec>& codec = std::nullopt);
  ScheduleCache& schedules() { return cache_; }
  const Topology& topology() const { return topology_; }

 private:
  // Collective (kind, ranks, root), whether every result must be rounded once, size class, the codec's kind (-1:
  // no codec) and its `every`.
  using Key = std::tuple<CollectiveKind, int, Node, bool, int, int, uint32_t>;

  Tuner(Topology topology, TunerOptions options) : topology_(std::move(topology)), options_(std::move(options)) {}

  const Topology topology_;
  const TunerOptions options_;
  ScheduleCache cache_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const Choice>> choices_;  // guarded by mutex_
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "tuner/tuner.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <string>
#include <utility>

#include "cost/flight.h"
#include "planner/planners.h"
#include "schedule/segments.h"
#include "tuner/shares_to_try.h"
#include "verify/owners.h"

namespace braid {
namespace {

bool must_round_once(const Collective& collective, DType dtype, ReduceOp op) {
  bool rounds = op == ReduceOp::kSum || op == ReduceOp::kAvg || op == ReduceOp::kProduct;
  return is_reduction(collective.kind) && collective.kind != CollectiveKind::kBarrier && rounds &&
         is_narrow_float(dtype);
}

// True if every reduce step completes its target, so that there are no partial results.
bool rounds_once(const VerifiedSchedule& verified) {
  const Schedule& schedule = verified.schedule();
  for (Node node = 0; node < schedule.nodes(); ++node) {
    for (size_t round = 0; round < schedule.programs[node].size(); ++round) {
      for (size_t step = 0; step < schedule.programs[node][round].size(); ++step) {
        bool reduces = schedule.programs[node][round][step].op == Op::kReduce;
        if (reduces && !verified.facts(node, round, step).completes) return false;
      }
    }
  }
  return true;
}

std::string quantity(double value, const std::array<const char*, 4>& units, double step) {
  size_t unit = 0;
  while (unit + 1 < units.size() && value >= step) {
    value /= step;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %s", value, units[unit]);
  return text;
}

std::string bytes_text(int64_t bytes) {
  return quantity(static_cast<double>(bytes), {"B", "KiB", "MiB", "GiB"}, 1024);
}

std::string seconds_text(double seconds) { return quantity(seconds * 1e9, {"ns", "us", "ms", "s"}, 1000); }

int64_t segments_by(int64_t chunk_bytes, const Schedule& schedule, int64_t bytes) {
  return chunk_bytes > 0 ? segments_of(schedule, bytes, chunk_bytes) : 1;
}

struct Priced {
  Candidate candidate;
  VerifiedSchedulePtr schedule;
  int64_t chunk_bytes = 0;
  std::vector<uint64_t> shares;
};

std::string reason_for(const Collective& collective, int aggregators, int64_t bytes,
                       const std::vector<Priced>& priced, const std::string& remark) {
  std::string reason = std::string(name_of(collective.kind)) + " of " + bytes_text(bytes) + " on " +
                       nodes_text(collective.ranks, aggregators) + ": ";
  for (size_t index = 0; index < priced.size(); ++index) {
    const Candidate& candidate = priced[index].candidate;
    reason += (index == 0 ? "" : ", then ") + candidate.algorithm + " " + seconds_text(candidate.predicted_s);
  }
  return reason + remark;
}

Status check_aggregators(const Collective& collective, int aggregators, const std::string& forced) {
  const auto takes_any = [](const Algorithm& algorithm) { return algorithm.takes_aggregators; };
  const std::span<const Algorithm> all = algorithms(collective.kind);
  const std::string name(name_of(collective.kind));
  if (aggregators == 0) return {};
  if (std::ranges::none_of(all, takes_any)) {
    return {Code::kUnsupported, name + ": no algorithm has work for aggregators"};
  }
  if (!forced.empty() && !takes_any(*find_algorithm(collective.kind, forced))) {
    return {Code::kInvalidArgument, name + ": the forced algorithm " + forced + " has no work for aggregators"};
  }
  return {};
}

constexpr size_t kLongMessage = size_t{1} << 24;

// The conditions for a candidate, in addition to a verified schedule.
struct Demands {
  bool rounds_once = false;
  std::optional<Codec> codec;
  size_t element_bytes = sizeof(float);

  bool met_by(const VerifiedSchedule& schedule, const Topology& topology) const {
    if (rounds_once && !braid::rounds_once(schedule)) return false;
    return !codec || has_owners(schedule, topology.numbered_hosts());
  }
  // Codecs encode float32: bytes of float32 per byte of the tensor.
  double floats_per_byte() const {
    return static_cast<double>(sizeof(float)) / static_cast<double>(element_bytes);
  }
  // Bytes of an encoded message per byte of the tensor.
  double part(size_t elements) const { return ratio(*codec, elements) * floats_per_byte(); }
};

// A sparse codec takes time to read all floats, and time for the floats that it sends. The sum was measured with
// one float in a hundred sent, and with one in a thousand.
double coding_s_per_byte(const Topology& topology, const Codec& codec) {
  const CodecTraits& row = traits(codec.kind);
  const double of_100 = topology.work_s_per_byte(row.name, row.coding_s_per_byte);
  if (!row.is_sparse) return of_100;
  const double of_1000 = std::min(topology.work_s_per_byte(std::string(row.name) + "_1000", of_100), of_100);
  // The time for the sent floats is at most half of of_1000, so that the result stays positive if fewer are sent.
  const double sent = std::min((of_100 - of_1000) / (1.0 / 100 - 1.0 / 1000), of_1000 * 1000 / 2);
  return of_1000 + sent * (1.0 / codec.every - 1.0 / 1000);
}

// Predicts the time. With a codec, messages have the encoded size of a chunk of one segment.
Result<double> predict(const Schedule& schedule, int64_t bytes, const Topology& topology,
                       const TunerOptions& options, int64_t chunk_bytes, const Demands& demands) {
  const Pipeline pipeline{segments_by(chunk_bytes, schedule, bytes), options.window};
  const std::optional<Codec>& codec = demands.codec;
  Rates rates = options.rates;
  if (!codec) return predict_s(schedule, bytes, topology, rates, pipeline);
  const int64_t elements =
      bytes / pipeline.segments / schedule.chunks / static_cast<int64_t>(demands.element_bytes);
  rates.code_s_per_byte = coding_s_per_byte(topology, *codec) * demands.floats_per_byte() * rates.sharers;
  const double part = demands.part(static_cast<size_t>(std::max<int64_t>(elements, 1)));
  return predict_s(schedule, bytes, topology.with_messages_of(part), rates, pipeline);
}

// Finer chunks must be predicted to save this fraction of the time: more messages may cost more than the model
// knows.
constexpr double kFinerGain = 0.05;
constexpr int64_t kFinestChunk = 4 * 1024;

// Tries smaller chunks than chunk_bytes_for() chose, which are as large as the NICs can take. A vector that fits
// one such chunk is not cut. On slow links it may take less time in segments: one goes out while another comes in.
Result<double> cut_finer(const Schedule& schedule, int64_t bytes, const Topology& topology,
                         const TunerOptions& options, const Demands& demands, int64_t* chunk_bytes) {
  Result<double> best_s = predict(schedule, bytes, topology, options, *chunk_bytes, demands);
  for (int64_t finer = *chunk_bytes / 2 / 64 * 64; best_s.ok() && finer >= kFinestChunk;
       finer = finer / 2 / 64 * 64) {
    if (segments_by(finer, schedule, bytes) == segments_by(*chunk_bytes, schedule, bytes)) continue;
    const Result<double> finer_s = predict(schedule, bytes, topology, options, finer, demands);
    if (!finer_s.ok()) return finer_s;
    if (finer_s.value() > best_s.value() * (1 - kFinerGain)) break;
    best_s = finer_s;
    *chunk_bytes = finer;
  }
  return best_s;
}

// Prices the algorithm with the shares that take the least time, and with the first of equally good shares. The
// result's schedule is null if no schedule of the algorithm meets the demands.
Result<Priced> price(const Algorithm& algorithm, const Collective& collective, const Demands& demands,
                     int64_t bytes, const Topology& topology, const TunerOptions& options, ScheduleCache& cache) {
  Priced best;
  const int aggregators = topology.nodes() - collective.ranks;
  for (std::vector<uint64_t>& shares : shares_to_try(algorithm, topology, aggregators, options.shares)) {
    Result<VerifiedSchedulePtr> schedule =
        cache.get(collective, algorithm.name, {shares, topology.numbered_hosts(), aggregators});
    if (!schedule.ok()) return schedule.status();
    if (!demands.met_by(*schedule.value(), topology)) continue;
    const Schedule& own = schedule.value()->schedule();
    int64_t chunk_bytes = options.chunk_bytes.value_or(0);
    if (options.chunk_bytes == 0) {
      chunk_bytes = chunk_bytes_for(own, topology, options.window, demands.codec ? demands.part(kLongMessage) : 1);
    }
    const bool may_cut_finer = options.chunk_bytes == 0 && !demands.codec && topology.host_count() > 1;
    Result<double> predicted_s = may_cut_finer ? cut_finer(own, bytes, topology, options, demands, &chunk_bytes)
                                               : predict(own, bytes, topology, options, chunk_bytes, demands);
    if (!predicted_s.ok()) return predicted_s.status();
    if (best.schedule != nullptr && predicted_s.value() >= best.candidate.predicted_s) continue;
    best = {{std::string(algorithm.name), predicted_s.value()}, schedule.value(), chunk_bytes, std::move(shares)};
  }
  return best;
}

// Replaces the time by the one to report, if there is another.
void report(const VerifiedSchedule& schedule, int64_t bytes, const TunerOptions& options, double* predicted_s) {
  if (options.reported_s) *predicted_s = options.reported_s(schedule, bytes).value_or(*predicted_s);
}

}  // namespace

Result<Choice> choose(const Collective& collective, DType dtype, ReduceOp op, int64_t bytes,
                      const Topology& topology, const TunerOptions& options, ScheduleCache& cache,
                      const std::optional<Codec>& codec) {
  Status possible = check(collective);
  if (!possible.ok()) return possible;
  if (collective.ranks > topology.nodes()) {
    return Status(Code::kInvalidArgument, std::to_string(collective.ranks) + " ranks on a topology of " +
                                              std::to_string(topology.nodes()) + " nodes");
  }
  if (bytes < 0) return Status(Code::kInvalidArgument, std::to_string(bytes) + " bytes");
  if (options.chunk_bytes.value_or(0) < 0) {
    return Status(Code::kInvalidArgument, "chunks of " + std::to_string(*options.chunk_bytes) + " bytes");
  }
  if (options.window < 1) return Status(Code::kInvalidArgument, "a window of " + std::to_string(options.window));
  Result<Forced> parsed = Forced::parse(options.algorithm);
  if (!parsed.ok()) return parsed.status();
  const std::string& forced = parsed.value().algorithm_for(collective.kind);
  const int aggregators = topology.nodes() - collective.ranks;
  Status possible_with = check_aggregators(collective, aggregators, forced);
  if (!possible_with.ok()) return possible_with;
  const std::vector<int> hosts_of_ranks(topology.numbered_hosts().begin(),
                                        topology.numbered_hosts().begin() + collective.ranks);

  const Demands demands{forced.empty() && must_round_once(collective, dtype, op), codec, size_of(dtype)};
  std::vector<Priced> priced;
  std::string left_out;
  for (const Algorithm& algorithm : algorithms(collective.kind)) {
    if (!algorithm.supports(collective) || (!forced.empty() && algorithm.name != forced)) continue;
    if (aggregators > 0 && !algorithm.takes_aggregators) continue;
    if (forced.empty() && !suits(algorithm, hosts_of_ranks)) continue;
    Result<Priced> one = price(algorithm, collective, demands, bytes, topology, options, cache);
    if (!one.ok()) return one.status();
    if (one.value().schedule != nullptr) {
      priced.push_back(std::move(one).value());
    } else {
      left_out += (left_out.empty() ? "" : ", ") + std::string(algorithm.name);
    }
  }
  if (priced.empty() && codec) {
    return Status(Code::kInvalidArgument,
                  forced.empty() ? "no codec can be used for " + std::string(name_of(collective.kind)) + " here"
                                 : "no codec can be used with " + forced + ", which algorithm=" +
                                       options.algorithm + " forces; direct and hierarchical_direct take one");
  }
  if (priced.empty()) return Status(Code::kInternal, "no algorithm for " + std::string(name_of(collective.kind)));

  // In the order of the table: of equally good algorithms the first wins, on every rank.
  std::string chosen = priced[0].candidate.algorithm;
  double chosen_s = priced[0].candidate.predicted_s;
  for (const Priced& one : priced) {
    if (one.candidate.predicted_s >= chosen_s * (1 - options.margin)) continue;
    chosen = one.candidate.algorithm;
    chosen_s = one.candidate.predicted_s;
  }
  for (Priced& one : priced) report(*one.schedule, bytes, options, &one.candidate.predicted_s);
  std::stable_sort(priced.begin(), priced.end(), [](const Priced& a, const Priced& b) {
    return a.candidate.predicted_s < b.candidate.predicted_s;
  });
  const auto at = std::find_if(priced.begin(), priced.end(),
                               [&](const Priced& one) { return one.candidate.algorithm == chosen; });
  std::rotate(priced.begin(), at, at + 1);
  std::string remark;
  if (!forced.empty()) remark = " (forced by algorithm=" + options.algorithm + ")";
  // The remark does not name the dtype: all narrow floats share the choice.
  if (!left_out.empty() && codec) {
    remark = " (a codec needs owners, which these have not: " + left_out + ")";
  } else if (!left_out.empty())
    remark = " (a narrow float is rounded once, so not " + left_out + ")";
  Choice choice{priced[0].candidate.algorithm,
                priced[0].candidate.predicted_s,
                {},
                std::move(priced[0].shares),
                "",
                priced[0].schedule,
                priced[0].chunk_bytes};
  choice.reason = reason_for(collective, aggregators, bytes, priced, remark);
  for (size_t index = 1; index < priced.size(); ++index) choice.runners_up.push_back(priced[index].candidate);
  return choice;
}

Result<std::unique_ptr<Tuner>> Tuner::create(Topology topology, TunerOptions options) {
  Result<Forced> forced = Forced::parse(options.algorithm);
  if (!forced.ok()) return forced.status();
  return std::unique_ptr<Tuner>(new Tuner(std::move(topology), std::move(options)));
}

Result<std::shared_ptr<const Choice>> Tuner::choose(const Collective& collective, DType dtype, ReduceOp op,
                                                    int64_t bytes, const std::optional<Codec>& codec) {
  if (bytes < 0) return Status(Code::kInvalidArgument, std::to_string(bytes) + " bytes");
  int size_class =
      bytes <= 1 ? 0 : std::min(62, static_cast<int>(std::bit_width(static_cast<uint64_t>(bytes) - 1)));
  Key key{collective.kind,
          collective.ranks,
          collective.root,
          must_round_once(collective, dtype, op),
          size_class,
          codec ? static_cast<int>(codec->kind) : -1,
          codec ? codec->every : 0};
  {
    std::lock_guard lock(mutex_);
    auto found = choices_.find(key);
    if (found != choices_.end()) return found->second;
  }
  Result<Choice> made =
      braid::choose(collective, dtype, op, int64_t{1} << size_class, topology_, options_, cache_, codec);
  if (!made.ok()) return made.status();
  auto choice = std::make_shared<const Choice>(std::move(made).value());
  std::lock_guard lock(mutex_);
  return choices_.try_emplace(key, std::move(choice)).first->second;
}

Result<Choice> Tuner::explain(const Collective& collective, DType dtype, ReduceOp op, int64_t bytes,
                              int64_t exact_bytes, const std::optional<Codec>& codec) {
  const auto made = choose(collective, dtype, op, bytes, codec);
  if (!made.ok()) return made.status();
  const auto priced = braid::choose(collective, dtype, op, exact_bytes, topology_, options_, cache_, codec);
  if (!priced.ok()) return priced.status();
  // Uses the shares of the size class; other shares may be cheaper for exact_bytes.
  const Schedule& own = made.value()->schedule->schedule();
  auto own_s =
      predict(own, exact_bytes, topology_, options_, made.value()->chunk_bytes, {false, codec, size_of(dtype)});
  if (!own_s.ok()) return own_s.status();
  report(*made.value()->schedule, exact_bytes, options_, &own_s.value());
  // The list of candidates does not depend on the size.
  std::vector<Candidate> all = {{priced.value().algorithm, priced.value().predicted_s}};
  all.insert(all.end(), priced.value().runners_up.begin(), priced.value().runners_up.end());
  Choice choice = *made.value();
  choice.runners_up.clear();
  for (Candidate& candidate : all) {
    if (candidate.algorithm == choice.algorithm) {
      choice.predicted_s = own_s.value();
    } else {
      choice.runners_up.push_back(std::move(candidate));
    }
  }
  return choice;
}

}  // namespace braid

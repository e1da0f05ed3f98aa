// SPDX-License-Identifier: Apache-2.0
#include "cost/flight.h"

#include <algorithm>
#include <vector>

namespace braid {
namespace {

constexpr int64_t kSegmentUnits = 1 << 20;  // a segment of a vector has so many units
constexpr double kLeastQueue = 256 * 1024;
constexpr double kMostQueue = 4 * 1024 * 1024;
constexpr double kLeastChunk = 4 * 1024;
// How long a chunk may keep a NIC busy. Chunks of kSmallChunk or less may take longer.
constexpr double kChunkTime_s = 1.5e-3;
constexpr double kSmallChunk = 16 * 1024;
constexpr double kMostChunk = 256 * 1024;
constexpr double kMostCoded = 1024 * 1024;  // bytes of floats to encode at a time; they should stay in the cache

// The sizes of a schedule's messages in one segment: units for a vector, chunks for blocks.
class Sizes {
 public:
  explicit Sizes(const Schedule& schedule)
      : vector_(is_vector(schedule.collective.kind)),
        offsets_(chunk_offsets(schedule, vector_ ? kSegmentUnits : 0)) {}

  double of(const Ref& ref) const {
    return vector_ ? static_cast<double>(offsets_[ref.first + ref.count] - offsets_[ref.first]) : ref.count;
  }

 private:
  bool vector_;
  std::vector<int64_t> offsets_;
};

// The size of the messages from other hosts that a node receives in one round, in the round with the most.
double most_taken(const Schedule& schedule, const Topology& topology, const Sizes& sizes, Node node) {
  const auto is_far = [&](Node from) { return from >= 0 && topology.host(from) != topology.host(node); };
  double most = 0;
  for (const Round& round : schedule.programs[node]) {
    double taken = 0;
    for (const Step& step : round) {
      if (step.op == Op::kRecv && is_far(step.peer)) taken += sizes.of(step.target);
      for (const Source& source : step.sources) {
        if (is_far(source.from)) taken += sizes.of(step.target);
      }
    }
    most = std::max(most, taken);
  }
  return most;
}

}  // namespace

int64_t chunk_bytes_for(const Schedule& schedule, const Topology& topology, int window, double ratio) {
  const Sizes sizes(schedule);
  std::vector<double> taken(topology.host_count(), 0);
  std::vector<double> queue(topology.host_count(), 0);
  std::vector<double> passed(topology.host_count(), 0);
  for (Node node = 0; node < topology.nodes(); ++node) {
    const int host = topology.numbered_hosts()[node];
    taken[host] += most_taken(schedule, topology, sizes, node);
    const double s_per_byte = topology.nic(topology.host(node)).down_s_per_byte;
    const double bytes_per_s = 1 / std::max(s_per_byte, 1e-12);
    queue[host] = std::clamp(kNicQueue_s * bytes_per_s, kLeastQueue, kMostQueue);
    passed[host] = std::clamp(kChunkTime_s * bytes_per_s, kSmallChunk, kMostChunk);
  }
  // The size of one chunk, as Sizes counts.
  const double unit =
      is_vector(schedule.collective.kind) ? static_cast<double>(kSegmentUnits) / schedule.chunks : 1;
  double chunk = kMostChunk;
  for (size_t host = 0; host < taken.size(); ++host) {
    if (taken[host] > 0) chunk = std::min({chunk, passed[host], queue[host] / window * unit / taken[host]});
  }
  chunk = std::max(chunk, kLeastChunk);
  if (ratio < 1) chunk = std::min(chunk / ratio, std::max(chunk, kMostCoded));
  return static_cast<int64_t>(chunk) / 64 * 64;
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "cost/boards.h"

#include <algorithm>
#include <array>
#include <vector>

#include "cost/chunk_sizes.h"
#include "schedule/segments.h"

namespace braid {
namespace {

// The part of the shared cache that the ranks' tensors find for themselves. The rest has boards, old tensors, and
// the data of other processes and of other guests of the machine. It was fitted to times of 1 to 64 MiB.
constexpr double kOwnPart = 0.35;
// How much longer a rank takes per other rank of its core: fitted to times with two and four ranks per core.
constexpr double kWait = 0.35;

using Work = std::vector<double>;  // per node, in bytes

class Traffic {
 public:
  Traffic(const Schedule& schedule, int64_t bytes, const BoardCut& cut, double cores)
      : schedule_(schedule), sizes_(schedule, bytes), cores_(cores) {
    const bool vector = is_vector(schedule.collective.kind);
    const int64_t block = vector ? bytes : bytes / schedule.collective.ranks;
    lends_ = block >= cut.lend_from;
  }

  bool lends() const { return lends_; }

  // Bytes that the busiest core touches, if one segment runs after the other. Within a round all ranks post, and
  // then take.
  double one_by_one() const {
    size_t rounds = 0;
    for (const Program& program : schedule_.programs) rounds = std::max(rounds, program.size());
    double sum = 0;
    for (size_t round = 0; round < rounds; ++round) {
      Work posted, taken;
      for (Node node = 0; node < schedule_.nodes(); ++node) {
        posted.push_back(bytes_posted(node, round));
        taken.push_back(bytes_taken(node, round));
      }
      sum += of_busiest_core(posted) + of_busiest_core(taken);
    }
    return sum;
  }

  // The same, if segments overlap: while some ranks take a segment, others post the next.
  double overlapping() const {
    Work work;
    for (Node node = 0; node < schedule_.nodes(); ++node) {
      double sum = 0;
      for (size_t round = 0; round < program(node).size(); ++round) {
        sum += bytes_posted(node, round) + bytes_taken(node, round);
      }
      work.push_back(sum);
    }
    return of_busiest_core(work);
  }

  // The bytes of each node's input and output.
  Work new_bytes() const {
    Work bytes;
    for (Node node = 0; node < schedule_.nodes(); ++node) bytes.push_back(new_bytes(node));
    return bytes;
  }

  double of_busiest_core(const Work& work) const {
    double most = 0, sum = 0;
    for (const double bytes : work) {
      most = std::max(most, bytes);
      sum += bytes;
    }
    return std::max(most, sum / cores_);
  }

 private:
  const Program& program(Node node) const { return schedule_.programs[static_cast<size_t>(node)]; }

  double bytes_posted(Node node, size_t number) const {
    if (lends_ || number >= program(node).size()) return 0;
    const Round& round = program(node)[number];
    double bytes = 0;
    for (auto step = round.begin(); step != round.end(); ++step) {
      if (step->op != Op::kSend) continue;
      const bool on_board = std::any_of(round.begin(), step, [&](const Step& earlier) {
        return earlier.op == Op::kSend && earlier.target == step->target;
      });
      if (!on_board) bytes += 2 * sizes_.of(node, step->target);
    }
    return bytes;
  }

  double bytes_taken(Node node, size_t number) const {
    if (number >= program(node).size()) return 0;
    double bytes = 0;
    for (const Step& step : program(node)[number]) {
      if (step.op == Op::kSend || is_done_in_place(step)) continue;
      const double sources = step.op == Op::kReduce ? static_cast<double>(step.sources.size()) : 1;
      bytes += (sources + 1) * sizes_.of(node, step.target);
    }
    return bytes;
  }

  bool is_done_in_place(const Step& step) const {
    return step.op == Op::kCopy && is_one_memory(step.target.buffer) &&
           is_one_memory(step.sources[0].ref.buffer) && step.target.first == step.sources[0].ref.first;
  }
  bool is_one_memory(Buffer buffer) const {
    return is_vector(schedule_.collective.kind) && buffer != Buffer::kScratch;
  }

  double new_bytes(Node node) const {
    std::array<std::vector<bool>, 2> seen;
    for (auto& chunks : seen) chunks.resize(sizes_.chunks());
    double bytes = 0;
    const auto see = [&](const Ref& ref) {
      if (ref.buffer == Buffer::kScratch) return;
      auto& chunks = seen[ref.buffer == Buffer::kInput || is_one_memory(ref.buffer) ? 0 : 1];
      const auto [first, end] = sizes_.chunks_of(node, ref);
      for (size_t chunk = first; chunk < end; ++chunk) {
        if (!chunks[chunk]) bytes += sizes_.of_chunk(chunk);
        chunks[chunk] = true;
      }
    };
    for (const Round& round : program(node)) {
      for (const Step& step : round) {
        if (is_done_in_place(step)) continue;
        see(step.target);
        for (const Source& source : step.sources) {
          if (!source.is_remote()) see(source.ref);
        }
      }
    }
    return bytes;
  }

  const Schedule& schedule_;
  const ChunkSizes sizes_;
  const double cores_;
  bool lends_ = false;
};

}  // namespace

double predict_on_boards_s(const Schedule& schedule, int64_t bytes, const BoardCut& cut, const BoardRates& rates) {
  const Traffic traffic(schedule, bytes, cut, static_cast<double>(schedule.nodes()) / rates.sharers);
  size_t rounds = 0;
  for (const Program& program : schedule.programs) rounds = std::max(rounds, program.size());
  const bool sends = schedule.nodes() > 1;
  const int64_t segments = traffic.lends() ? 1 : segments_of(schedule, bytes, cut.chunk_bytes);
  const auto later = static_cast<double>(segments - 1);
  const double turns = later * static_cast<double>(cut.stride) + static_cast<double>(rounds);

  const bool overlaps = cut.stride < static_cast<int64_t>(rounds) || rounds <= 1;
  const double first = traffic.one_by_one();
  const double next = overlaps ? traffic.overlapping() : first;
  const double touched = (first + later * next) / static_cast<double>(segments);

  const Work fresh = traffic.new_bytes();
  double of_all = 0;
  for (const double of_node : fresh) of_all += of_node;
  const double kept = rates.cache_bytes * kOwnPart;
  const double missing = of_all > kept ? 1 - kept / of_all : 0;

  return (sends ? turns * rates.round_s : 0) +
         touched * rates.touch_s_per_byte * (1 + kWait * (rates.sharers - 1)) +
         traffic.of_busiest_core(fresh) * rates.fetch_s_per_byte * missing;
}

}  // namespace braid

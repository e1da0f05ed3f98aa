// SPDX-License-Identifier: Apache-2.0
// Reads any text as a schedule. What is accepted comes back the same from its own text; and what verify() proves, an
// interpreter that shares no code with it finds right.
#include <limits>

#include "fuzz/targets.h"
#include "schedule/text.h"
#include "support/reference.h"
#include "verify/verify.h"

namespace braid::fuzz {
namespace {

// What is larger is read and written, but not proved: the proof takes memory for every chunk of every node.
constexpr int64_t kMostChunksOfAllNodes = 4096;
constexpr int64_t kMostChunksToRun = 256;

int64_t chunks_of_all_nodes(const Schedule& schedule) { return int64_t{schedule.nodes()} * schedule.chunks; }

void look_at_offsets(const Schedule& schedule) {
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{1} << 40}) {
    const std::vector<int64_t> offsets = chunk_offsets(schedule, count);
    require(offsets.size() == static_cast<size_t>(schedule.chunks) + 1, "there is an offset more than chunks");
    require(offsets.front() == 0 && offsets.back() == count, "chunks cover all elements");
    require(std::is_sorted(offsets.begin(), offsets.end()), "no chunk has less than no elements");
  }
}

}  // namespace

void schedule_target(Input input) {
  Reader reader(input);
  const auto schedule = schedule_from_text(reader.text());
  if (!schedule.ok()) {
    require(schedule.status().code() == Code::kInvalidArgument, "a refusal is an invalid argument");
    require(schedule.status().message().starts_with("line "), "a refusal names the line");
    return;
  }
  const std::string written = to_text(schedule.value());
  const auto again = schedule_from_text(written);
  require(again.ok(), "what is written can be read: " + again.status().message() + "\n" + written);
  require(again.value() == schedule.value(), "a schedule comes back the same:\n" + written);
  if (chunks_of_all_nodes(schedule.value()) > kMostChunksOfAllNodes) return;
  const auto verified = verify(schedule.value());
  if (!verified.ok()) {
    require(verified.status().code() == Code::kInvalidArgument, "a refusal is an invalid argument");
    return;
  }
  look_at_offsets(schedule.value());
  if (chunks_of_all_nodes(schedule.value()) > kMostChunksToRun) return;
  const std::string fault = testing::fault_of(schedule.value());
  require(fault.empty(), "what is proved computes what it must: " + fault + "\n" + written);
}

}  // namespace braid::fuzz

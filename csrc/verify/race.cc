// SPDX-License-Identifier: Apache-2.0
#include "verify/race.h"

#include <string>
#include <vector>

#include "schedule/text.h"

namespace braid {
namespace {

// Remembers for every cell the last round that sent it, and the last round in which a message landed in it. Rounds
// are numbered over all nodes.
class RaceCheck {
 public:
  RaceCheck(const Schedule& schedule, const Memory& memory)
      : schedule_(schedule), memory_(memory), sent_(memory.size(), 0), landed_(memory.size(), 0) {}

  Status run() {
    for (Node node = 0; node < schedule_.nodes(); ++node) {
      for (size_t round = 0; round < schedule_.programs[node].size(); ++round) {
        Status status = check_round(node, round);
        if (!status.ok()) return status;
      }
    }
    return {};
  }

 private:
  Status check_round(Node node, size_t round) {
    ++now_;
    const Round& steps = schedule_.programs[node][round];
    for (const Step& step : steps) {
      if (step.op != Op::kSend) continue;
      for (int k = 0; k < step.target.count; ++k) {
        sent_[memory_.cell(node, step.target.buffer, step.target.first + k)] = now_;
      }
    }
    for (size_t index = 0; index < steps.size(); ++index) {
      const Ref& target = steps[index].target;
      if (steps[index].op != Op::kRecv) continue;
      for (int k = 0; k < target.count; ++k) {
        size_t cell = memory_.cell(node, target.buffer, target.first + k);
        const char* reason = sent_[cell] == now_ ? "race: this memory is also sent in this round"
                             : landed_[cell] == now_
                                 ? "race: another message of this round lands in the same memory"
                                 : nullptr;
        if (reason != nullptr) {
          return {Code::kInvalidArgument, to_text(schedule_, node, round, index) + ": " + reason};
        }
        landed_[cell] = now_;
      }
    }
    return {};
  }

  const Schedule& schedule_;
  const Memory& memory_;
  std::vector<uint64_t> sent_;
  std::vector<uint64_t> landed_;
  uint64_t now_ = 0;
};

}  // namespace

Status check_races(const Schedule& schedule, const Memory& memory) { return RaceCheck(schedule, memory).run(); }

}  // namespace braid

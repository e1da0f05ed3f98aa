// SPDX-License-Identifier: Apache-2.0
// When to say that an operation waits, and the words for it. No more than that: stall.h has who knows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "schedule/collective.h"

namespace braid {

// How long peers have to say which operation they are in, once they are asked.
inline constexpr milliseconds kAnswerTime{300};

// "30 s", "0.25 s", "1234 s".
std::string seconds_text(Clock::duration duration);

// The times at which a wait is looked at. A notice is due after `first`, then when the wait has lasted twice as long,
// and so on. Those who are awaited are asked a moment before, so that their answers are there. In between the wait is
// shown to whoever asks for it from outside, once a second.
class StallWatch {
 public:
  enum class Step { kNone, kShow, kAsk, kTell };

  StallWatch() = default;                                   // watches nothing
  StallWatch(Clock::time_point begun, milliseconds first);  // first = 0: no notices

  // When step() is to be called next.
  Deadline due() const;
  // What is to be done now; to be called until there is nothing.
  Step step(Clock::time_point now);
  Clock::time_point begun() const { return begun_; }
  bool has_shown() const { return has_shown_; }
  int notices() const { return notices_; }

 private:
  Clock::time_point begun_{};
  Clock::duration notice_after_{};
  Deadline show_at_ = kNoDeadline;
  Deadline notice_at_ = kNoDeadline;
  bool has_asked_ = false;
  bool has_shown_ = false;
  int notices_ = 0;
};

// A rank that keeps others waiting.
struct Culprit {
  Node rank = kAnyNode;
  std::string place;            // "node7 (pid 4711)", if that is known
  int64_t last_collective = 0;  // that it has begun; -1 when it did not answer
  std::string missing;          // "3 of 8 messages with it are open"
};

// A line's part about those who are awaited in a collective: those who have not begun it first, a few by name.
std::string culprits_text(std::vector<Culprit> culprits, uint64_t sequence);
// "ranks 2, 5" or "rank 2"; of many a few: "ranks 1, 2, 3, 4 and 12 more".
std::string ranks_text(const std::vector<Node>& ranks);

}  // namespace braid

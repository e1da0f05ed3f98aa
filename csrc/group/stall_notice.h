// SPDX-License-Identifier: Apache-2.0
// When to log that an operation waits, and the text. stall.h supplies the facts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "schedule/collective.h"

namespace braid {

// How long peers have to answer which operation they are in.
inline constexpr milliseconds kAnswerTime{300};

// "30 s", "0.25 s", "1234 s".
std::string seconds_text(Clock::duration duration);

// Decides when to look at a wait. A notice is due after `first`, then after twice that time, and so on. The
// awaited ranks are asked kAnswerTime before, so that their answers are there. Once a second the wait is shown in
// the list of waits.
class StallWatch {
 public:
  enum class Step { kNone, kShow, kAsk, kTell };

  StallWatch() = default;                                   // watches nothing
  StallWatch(Clock::time_point begun, milliseconds first);  // first = 0: no notices

  // The time of the next call of step().
  Deadline due() const;
  // What the caller must do now. Call it until it returns kNone.
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
  std::string place;            // "node7 (pid 4711)", if known
  int64_t last_collective = 0;  // the last collective that it has begun; -1 if it did not answer
  std::string missing;          // "3 of 8 messages with it are open"
};

// The part of a notice about the awaited ranks of a collective. Names a few, first those that have not begun it.
std::string culprits_text(std::vector<Culprit> culprits, uint64_t sequence);
// "ranks 2, 5" or "rank 2". Many ranks are cut: "ranks 1, 2, 3, 4 and 12 more".
std::string ranks_text(const std::vector<Node>& ranks);

}  // namespace braid

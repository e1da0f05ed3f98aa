// SPDX-License-Identifier: Apache-2.0
// Operations that wait long. Each operation watches its own wait and names the ranks that cause it. The group
// keeps a list of these waits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "communicator/communicator.h"
#include "communicator/member.h"
#include "group/peers.h"
#include "group/stall_notice.h"
#include "transport/mailbox.h"

namespace braid {

// What an operation knows about its wait.
struct WaitView {
  std::shared_ptr<Work> work;
  uint64_t sequence = 0;                     // of a collective; 0 for a message
  std::vector<Node> awaited;                 // the ranks it waits for directly; empty if it does not know
  std::function<std::string(Node)> missing;  // what is missing from one of these ranks, or kAnyNode: in general
};

// The waits of a group that have lasted at least a second. Thread safe.
class Stalls {
 public:
  // All arguments must outlive it.
  Stalls(const Member& member, Mailbox& mailbox, const Peers& peers)
      : member_(member), mailbox_(mailbox), peers_(peers) {}

  void show(const std::shared_ptr<Work>& work, Clock::time_point since, std::vector<Node> awaited);
  // True if the caller may log a line. Limits the lines per second, so that many waiting operations log only a
  // few.
  bool count_notice(Clock::time_point now);
  // Asks these ranks which collective they are in.
  void ask(const std::vector<Node>& ranks) { mailbox_.ask(ranks); }
  // "rank 0 has waited 30 s in all_reduce #4 (...) of group "world": rank 1 has not begun it ...".
  std::string notice(const WaitView& view, Clock::duration waited) const;
  // "rank 0: all_reduce #4 (...) of group "world" has ended after 40 s".
  std::string end_notice(const Work& work, bool ok, Clock::duration waited) const;
  void end(const Work* work, Clock::time_point now);
  Waits waits() const;

 private:
  struct Row {
    std::shared_ptr<Work> work;
    Clock::time_point since;
    std::vector<Node> awaited;
  };

  // The awaited ranks, and all ranks known not to have begun the collective: the awaited ranks may wait for them.
  std::vector<Culprit> culprits_of(const WaitView& view) const;
  std::string reason_of(const WaitView& view) const;

  const Member& member_;
  Mailbox& mailbox_;
  const Peers& peers_;

  mutable std::mutex mutex_;
  std::vector<Row> rows_;
  uint64_t notices_ = 0;
  Clock::time_point counted_since_{};
  int counted_ = 0;
  Clock::duration longest_{};
};

// The wait of one operation. Not thread safe: only the thread that carries the operation uses it.
class Stall {
 public:
  void begin(Clock::time_point begun, milliseconds first_notice) { watch_ = StallWatch(begun, first_notice); }
  Deadline due() const { return watch_.due(); }
  // Call it once due: shows the wait in `stalls`, asks the awaited ranks, or logs a line.
  void look(Stalls& stalls, Clock::time_point now, const WaitView& view);
  // The operation has ended. Cheap unless the wait was shown.
  void end(Stalls& stalls, const std::shared_ptr<Work>& work, bool ok) {
    if (watch_.has_shown() || has_told_) end_shown(stalls, work, ok);
  }

 private:
  void end_shown(Stalls& stalls, const std::shared_ptr<Work>& work, bool ok);

  StallWatch watch_;
  bool has_told_ = false;
};

}  // namespace braid

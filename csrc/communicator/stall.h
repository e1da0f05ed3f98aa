// SPDX-License-Identifier: Apache-2.0
// Operations that wait: each watches its own wait and says who is to blame, and the group keeps the list of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "communicator/communicator.h"
#include "communicator/stall_notice.h"

namespace braid {

class Group;

// The waits of a group that have lasted a second. Thread safe.
class Stalls {
 public:
  void show(const std::shared_ptr<Work>& work, Clock::time_point since, std::vector<Node> awaited);
  // Whether a line may be written: where very many operations wait at once, a few of them speak for all.
  bool count_notice(Clock::time_point now);
  void end(const Work* work, Clock::time_point now);
  Waits waits() const;

 private:
  struct Row {
    std::shared_ptr<Work> work;
    Clock::time_point since;
    std::vector<Node> awaited;
  };
  mutable std::mutex mutex_;
  std::vector<Row> rows_;
  uint64_t notices_ = 0;
  Clock::time_point counted_since_{};
  int counted_ = 0;
  Clock::duration longest_{};
};

// What an operation can tell of its wait.
struct WaitView {
  std::shared_ptr<Work> work;
  uint64_t sequence = 0;                     // of a collective; 0 for a message
  std::vector<Node> awaited;                 // whom it waits for directly; those it does not know are none
  std::function<std::string(Node)> missing;  // from one of them
};

// The wait of one operation. Not thread safe: for whoever carries the operation.
class Stall {
 public:
  void begin(Clock::time_point begun, milliseconds first_notice) { watch_ = StallWatch(begun, first_notice); }
  Deadline due() const { return watch_.due(); }
  // Once due: shows it to those outside, asks those who are awaited, writes a line.
  void look(Group& group, Clock::time_point now, const WaitView& view);
  // The operation has ended. Costs nothing unless it was shown.
  void end(Group& group, const std::shared_ptr<Work>& work, bool ok) {
    if (watch_.has_shown() || has_told_) end_shown(group, work, ok);
  }

 private:
  void end_shown(Group& group, const std::shared_ptr<Work>& work, bool ok);

  StallWatch watch_;
  bool has_told_ = false;
};

}  // namespace braid

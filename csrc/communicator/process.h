// SPDX-License-Identifier: Apache-2.0
// State of the process: its engine, and how often it has forked. All adapters of a process share it, so that their
// groups share one engine.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "communicator/communicator.h"

namespace braid {

// How many forks led to this process. A group made under another count belongs to the parent: its threads do not
// exist here, and its locks may be held for ever.
int fork_count();

// The one T of this process. The first call makes it; it is never destroyed. A forked child makes its own, because
// the locks of the parent's T may be held for ever. T must belong to one library, or each library may have another
// T.
template <class T>
T& of_this_process() {
  struct Slot {
    const int made_under = fork_count();
    T value;
  };
  static std::atomic<Slot*> current{nullptr};
  Slot* seen = current.load();
  while (seen == nullptr || seen->made_under != fork_count()) {
    auto fresh = std::make_unique<Slot>();
    if (current.compare_exchange_strong(seen, fresh.get())) return fresh.release()->value;
  }
  return seen->value;
}

// Never destroys the value. A forked child does this to its parent's threads and locks.
template <class T>
void abandon(T value) {
  new T(std::move(value));
}

// A group on this process's engine. The engine is made with the first group and destroyed with the last. A forked
// child makes its own. Blocks until all ranks are there.
Result<std::shared_ptr<Communicator>> make_group(const std::shared_ptr<Store>& store, int rank, int size,
                                                 const std::string& name, const Options& options);
// Ends a group made by make_group(). Waits a few seconds for started operations; `give_up` ends the wait.
void end_group(std::shared_ptr<Communicator> group, const GiveUp& give_up = {});
// All living groups, in the order made.
std::vector<std::shared_ptr<Communicator>> all_groups();
// For the end of the process: shuts all groups down. So peers see them leave, and no thread of braid outlives
// main. With a reason (this process failed), aborts the groups first and tells the reason to the peers.
void leave_all_groups(const std::string& reason, const GiveUp& give_up = {});

}  // namespace braid

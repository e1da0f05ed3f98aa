// SPDX-License-Identifier: Apache-2.0
// What belongs to the process rather than to a group: its engine, and the marks a fork leaves. All adapters of a
// process share these, so that their groups share one engine.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "communicator/communicator.h"

namespace braid {

// How often this process and its ancestors have forked. A group made under another count belongs to the parent:
// its threads do not exist here, and its locks may be held for ever.
int fork_count();

// The one T of this process, made when first asked for and never destroyed. A forked child has its own: the locks of
// its parent's may be held for ever. T must be a type of one library alone, or libraries may not agree which T it is.
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

// Never destroys the value: what a forked child does with its parent's threads and locks.
template <class T>
void abandon(T value) {
  new T(std::move(value));
}

// A group on this process's engine. All groups share one engine: made with the first, gone with the last. A forked
// child makes its own. Blocks until all ranks are there.
Result<std::shared_ptr<Communicator>> make_group(const std::shared_ptr<Store>& store, int rank, int size,
                                                 const std::string& name, const Options& options);
// The end of a group made by make_group(). Waits a few seconds for started operations, unless given up.
void end_group(std::shared_ptr<Communicator> group, const GiveUp& give_up = {});
// Those that live, in the order made.
std::vector<std::shared_ptr<Communicator>> all_groups();
// For the end of the process: shuts all groups down, so that peers see them leave and no thread of ours outlives
// main. With a reason (this process failed) they are aborted, and peers are told.
void leave_all_groups(const std::string& reason, const GiveUp& give_up = {});

}  // namespace braid

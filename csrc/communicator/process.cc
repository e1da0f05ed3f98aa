// SPDX-License-Identifier: Apache-2.0
#include "communicator/process.h"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/caught.h"

namespace braid {
namespace {

std::atomic<int> forks{0};

// How long the end of the last group waits until the progress thread has dropped its reference to it.
constexpr milliseconds kPartingTime{1000};

struct SharedEngine {
  std::mutex mutex;
  std::shared_ptr<Engine> engine;
  int users = 0;
  std::vector<std::weak_ptr<Communicator>> groups;
};

Result<std::shared_ptr<Engine>> enter(SharedEngine& shared, const Options& options) {
  const std::lock_guard<std::mutex> lock(shared.mutex);
  if (!shared.engine) {
    auto made = Engine::create(options);
    if (!made.ok()) return made;
    shared.engine = std::move(made).value();
  }
  ++shared.users;
  return shared.engine;
}

// A thread of the engine may hold a group, and so the engine, a moment longer than the caller. A thread of the
// engine must not destroy the engine. So the reference here is dropped last, or kept for the next group after
// kPartingTime.
void leave(SharedEngine& shared) {
  const std::lock_guard<std::mutex> lock(shared.mutex);
  std::erase_if(shared.groups, [](const auto& group) { return group.expired(); });
  if (--shared.users > 0) return;
  const Deadline deadline = deadline_after(kPartingTime);
  while (shared.engine.use_count() > 1 && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
  if (shared.engine.use_count() == 1) shared.engine.reset();
}

}  // namespace

int fork_count() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  static_cast<void>(registered);  // fails only if memory has run out; then forks are not counted
  return forks.load(std::memory_order_relaxed);
}

Result<std::shared_ptr<Communicator>> make_group(const std::shared_ptr<Store>& store, int rank, int size,
                                                 const std::string& name, const Options& options) {
  SharedEngine& shared = of_this_process<SharedEngine>();
  auto engine = enter(shared, options);
  if (!engine.ok()) return engine.status();
  Result<std::shared_ptr<Communicator>> group = Status();
  const Status thrown = caught("forming a group", [&] {
    group = Communicator::create(std::move(engine).value(), store, rank, size, name, options);
    if (!group.ok()) return;
    const std::lock_guard<std::mutex> lock(shared.mutex);
    shared.groups.push_back(group.value());
  });
  if (!thrown.ok()) group = thrown;
  if (group.ok()) return group;
  leave(shared);
  return group;
}

void end_group(std::shared_ptr<Communicator> group, const GiveUp& give_up) {
  group->shutdown(give_up);
  group.reset();
  leave(of_this_process<SharedEngine>());
}

std::vector<std::shared_ptr<Communicator>> all_groups() {
  SharedEngine& shared = of_this_process<SharedEngine>();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  std::vector<std::shared_ptr<Communicator>> groups;
  for (const auto& weak : shared.groups) {
    if (auto group = weak.lock()) groups.push_back(std::move(group));
  }
  return groups;
}

void leave_all_groups(const std::string& reason, const GiveUp& give_up) {
  for (const auto& group : all_groups()) {
    if (!reason.empty()) group->abort(reason);
    group->shutdown(give_up);
  }
}

}  // namespace braid

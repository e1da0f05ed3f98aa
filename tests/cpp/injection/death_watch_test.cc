// SPDX-License-Identifier: Apache-2.0
// A death watch that is refused memory, descriptors or its thread watches the next process all the same.
#include "transport/death_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/caught.h"
#include "base/clock.h"
#include "base/log.h"
#include "injection/faults.h"

namespace braid::testing {
namespace {

pid_t sleeper() {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::pause();
  ::_exit(0);
}

void end(pid_t pid) {
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

bool comes_true(const std::atomic<bool>& flag) {
  const Deadline until = Clock::now() + milliseconds(10'000);
  while (!flag && Clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
  return flag;
}

TEST(DeathWatchInjection, WatchesOnAfterARefusal) {
  set_log_sink([](LogLevel, const char*) {});
  for (const Fault fault : {Fault::kMemory, Fault::kDescriptor, Fault::kThread}) {
    uint64_t all = 1;
    for (uint64_t first = 0; first <= all; ++first) {
      std::atomic<bool> early{false}, died{false}, later{false};
      const auto watch = make_death_watch();
      const pid_t one = sleeper(), other = sleeper();
      arm(fault, first);
      Result<DeathWatch::Id> watched = Status();
      const Status thrown = caught("watching", [&] { watched = watch->watch(one, [&] { died = true; }); });
      std::this_thread::sleep_for(milliseconds(5));  // its thread asks for memory, too
      const uint64_t seen = disarm();
      if (first == 0) all = seen;
      if (!thrown.ok() || !watched.ok()) {
        EXPECT_GT(first, 0u);
        EXPECT_FALSE((thrown.ok() ? watched.status() : thrown).message().empty());
      }
      const auto next = watch->watch(other, [&] { later = true; });
      ASSERT_TRUE(next.ok()) << next.status().message();
      end(one);
      end(other);
      EXPECT_TRUE(comes_true(later)) << "refusal " << first;
      if (thrown.ok() && watched.ok()) {
        EXPECT_TRUE(comes_true(died)) << "refusal " << first;
      }
      watch->forget(next.value());
    }
  }
  set_log_sink(nullptr);
}

}  // namespace
}  // namespace braid::testing

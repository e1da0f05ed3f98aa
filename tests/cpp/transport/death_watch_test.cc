// SPDX-License-Identifier: Apache-2.0
#include "transport/death_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace braid {
namespace {

// A process that sleeps until it is killed.
class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    while (pid_ == 0) ::pause();
  }
  ~Sleeper() { kill(); }

  pid_t pid() const { return pid_; }
  void kill() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_;
};

bool becomes(const std::atomic<int>& count, int expected) {
  const Deadline deadline = deadline_after(milliseconds(5'000));
  while (count != expected && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
  return count == expected;
}

TEST(DeathWatchTest, EveryWatcherOfADeadProcessIsToldOnce) {
  Sleeper first, second;
  auto watch = make_death_watch();
  std::atomic<int> first_died{0}, second_died{0};
  ASSERT_TRUE(watch->watch(first.pid(), [&] { ++first_died; }).ok());
  ASSERT_TRUE(watch->watch(second.pid(), [&] { ++second_died; }).ok());
  ASSERT_TRUE(watch->watch(first.pid(), [&] { ++first_died; }).ok());
  first.kill();
  EXPECT_TRUE(becomes(first_died, 2));
  EXPECT_EQ(second_died, 0);
  second.kill();
  EXPECT_TRUE(becomes(second_died, 1));
  EXPECT_EQ(first_died, 2);
}

TEST(DeathWatchTest, AForgottenWatcherIsNotTold) {
  Sleeper sleeper;
  auto watch = make_death_watch();
  std::atomic<int> forgotten{0}, kept{0};
  const DeathWatch::Id id = watch->watch(sleeper.pid(), [&] { ++forgotten; }).value();
  ASSERT_TRUE(watch->watch(sleeper.pid(), [&] { ++kept; }).ok());
  watch->forget(id);
  watch->forget(id + 1000);
  sleeper.kill();
  EXPECT_TRUE(becomes(kept, 1));
  EXPECT_EQ(forgotten, 0);
}

TEST(DeathWatchTest, ForgettingRacesWithDying) {
  for (int round = 0; round < 50; ++round) {
    Sleeper sleeper;
    auto watch = make_death_watch();
    auto count = std::make_unique<std::atomic<int>>(0);
    const DeathWatch::Id id = watch->watch(sleeper.pid(), [&died = *count] { ++died; }).value();
    std::thread killer([&] { ::kill(sleeper.pid(), SIGKILL); });
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(10 * round));
    watch->forget(id);
    count.reset();  // the callback refers to it: a late call would be a use after free
    killer.join();
  }
}

TEST(DeathWatchTest, AProcessThatIsGoneIsRefused) {
  Sleeper sleeper;
  const pid_t pid = sleeper.pid();
  sleeper.kill();
  auto watch = make_death_watch();
  const Status status = watch->watch(pid, [] {}).status();
  EXPECT_EQ(status.code(), Code::kSystem);
  EXPECT_NE(status.message().find(std::to_string(pid)), std::string::npos) << status.message();
}

TEST(DeathWatchTest, AProcessNotYetBuriedIsToldAsDead) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  auto watch = make_death_watch();
  std::atomic<int> died{0};
  ASSERT_TRUE(watch->watch(pid, [&] { ++died; }).ok());
  EXPECT_TRUE(becomes(died, 1));
  ::waitpid(pid, nullptr, 0);
}

TEST(DeathWatchTest, WatchersCanComeAndGoFromManyThreads) {
  std::vector<std::unique_ptr<Sleeper>> sleepers;
  for (int i = 0; i < 4; ++i) sleepers.push_back(std::make_unique<Sleeper>());
  auto watch = make_death_watch();
  std::atomic<int> died{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const auto id = watch->watch(sleepers[static_cast<size_t>(i % 4)]->pid(), [&] { ++died; });
        ASSERT_TRUE(id.ok()) << id.status().message();
        if (i >= 4) watch->forget(id.value());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(died, 0);
  for (const auto& sleeper : sleepers) sleeper->kill();
  EXPECT_TRUE(becomes(died, 16));
}

TEST(DeathWatchTest, BeatsFromTheFirstWatchOn) {
  std::atomic<uint32_t> pulse{0};
  Sleeper sleeper;
  const auto watch = make_death_watch();
  watch->beat(pulse);
  EXPECT_EQ(pulse, 0u) << "nobody reads it yet";
  ASSERT_TRUE(watch->watch(sleeper.pid(), [] {}).ok());
  const auto began = Clock::now();
  while (pulse < 4 && Clock::now() - began < milliseconds(10'000)) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_GE(pulse, 4u);
  // Not more often than it must: an idle process is woken for each.
  EXPECT_GT(Clock::now() - began, kPulseTime);
}

}  // namespace
}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// Memory for the bodies of calls: who gets it, and that those who wait hear of it.
#include "parameters/buffers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "parameters/one_server.h"

namespace braid::testing {
namespace {

// Jobs of workers in other processes. Each is cancelled before its memory goes.
class RemoteJobs {
 public:
  explicit RemoteJobs(Server& server) : server_(server) {}
  ~RemoteJobs() {
    for (const auto& job : jobs_) server_.cancel(*job);
  }
  Job& of(int worker, CallKind kind = CallKind::kPushPull) {
    Job& job = *jobs_.emplace_back(std::make_unique<Job>());
    job.worker = worker;
    job.is_remote = true;
    job.call.kind = kind;
    job.call.count = kCount;
    return job;
  }

 private:
  Server& server_;
  std::vector<std::unique_ptr<Job>> jobs_;
};

TEST_F(OneServer, BuffersGoToThoseWhoseTurnComesFirst) {
  make(Mode::kSync, 3, 0, 1);
  RemoteJobs jobs(*server_);
  const auto wants = [&](int worker) { return server_->acquire(jobs.of(worker)); };
  EXPECT_EQ(wants(0), nullptr) << "the only buffer is for the values of the beginning";
  install(1);
  EXPECT_EQ(wants(1), nullptr) << "the only buffer is for worker 0";
  EXPECT_EQ(wants(0), nullptr) << "an earlier job of worker 0 has a place before this one";
}

TEST_F(OneServer, TheOneThatHasWaitedLongestGetsTheNextBuffer) {
  make(Mode::kAsync, 4, 0, 1);
  install(1);
  RemoteJobs jobs(*server_);
  Floats buffer = server_->acquire(jobs.of(0));
  ASSERT_NE(buffer, nullptr);
  Job& first = jobs.of(1);
  Job& second = jobs.of(2);
  EXPECT_EQ(server_->acquire(first), nullptr);
  EXPECT_EQ(server_->acquire(second), nullptr);
  server_->release(std::move(buffer));
  Job& newest = jobs.of(3);
  EXPECT_EQ(server_->acquire(newest), nullptr) << "two have waited for longer";
  EXPECT_EQ(server_->acquire(second), nullptr) << "one has waited for longer";
  EXPECT_NE(buffer = server_->acquire(first), nullptr);
  server_->cancel(second);
  server_->release(std::move(buffer));
  EXPECT_NE(buffer = server_->acquire(newest), nullptr) << "the second one has gone";
  server_->release(std::move(buffer));
}

// A pull that has come earlier is answered before a push gets memory for its body.
TEST_F(OneServer, PullsStandInTheSameQueue) {
  make(Mode::kAsync, 3, 0, 1);
  install(1);
  RemoteJobs jobs(*server_);
  Floats buffer = server_->acquire(jobs.of(0));
  Job& pull = jobs.of(1, CallKind::kPull);
  server_->submit(pull);
  EXPECT_FALSE(pull.done.load());
  Job& push = jobs.of(2);
  EXPECT_EQ(server_->acquire(push), nullptr);
  server_->release(std::move(buffer));
  EXPECT_TRUE(pull.done.load());
  EXPECT_EQ(server_->acquire(push), nullptr) << "the pull has the buffer";
  server_->release(std::move(pull.buffer));
  EXPECT_NE(buffer = server_->acquire(push), nullptr);
  server_->release(std::move(buffer));
}

// Whoever polls the lanes may sleep, so the bell has to ring.
TEST_F(OneServer, ThoseThatWaitForMemoryHearThatThereIsSome) {
  make(Mode::kSync, 2, 0, 1);
  install(0);
  RemoteJobs jobs(*server_);
  Job& waits = jobs.of(1);
  EXPECT_EQ(server_->acquire(waits), nullptr) << "worker 0 comes first";
  Waiter sleeper(bell_);
  while (!sleeper.before_sleep()) sleeper.idle(Clock::now());
  const uint32_t before = bell_.rings.load();
  call(0, CallKind::kPush, 1);  // by another thread of this process
  EXPECT_NE(bell_.rings.load(), before);
  Floats buffer = server_->acquire(waits);
  ASSERT_NE(buffer, nullptr);
  Job& later = jobs.of(0);
  EXPECT_EQ(server_->acquire(later), nullptr);
  const uint32_t then = bell_.rings.load();
  server_->release(std::move(buffer));
  EXPECT_NE(bell_.rings.load(), then);
}

class Fairness : public EveryWire {};
INSTANTIATE_TEST_SUITE_P(Wires, Fairness, ::testing::ValuesIn(wires()), wire_name);

// More workers than buffers, each with several pushes under way.
TEST_P(Fairness, TheSlowestWorkerMakesHalfOfTheMediansUpdates) {
  constexpr size_t kElements = 65536;
  constexpr int kWorkers = 6;
  constexpr int kWindow = 6;
  constexpr int kUpdates = 600;
  std::atomic<int> updates{0};
  std::vector<int> made(kWorkers);
  on_all_members(
      kWorkers + 1, options(),
      [](const Place& place) {
        ServiceSetup setup = setup_alone(place, kElements, kWorkers, 1, Mode::kAsync);
        setup.server.buffers = 2;
        return setup;
      },
      [&](const Place& place, ParameterService& service) {
        if (place.rank == kWorkers) return;
        const std::vector<float> update(kElements, 1.0f);
        if (place.rank == 0) {
          ASSERT_TRUE(outcome(service, service.install(update.data())).ok());
        }
        std::deque<ParameterService::Request> open;
        std::deque<std::vector<float>> values;
        for (int i = 0; i < kWindow; ++i) values.emplace_back(kElements);
        for (int i = 0; updates.load() < kUpdates; ++i) {
          if (open.size() == kWindow) {
            ASSERT_TRUE(outcome(service, open.front()).ok());
            open.pop_front();
            ++updates;
            ++made[static_cast<size_t>(place.rank)];
          }
          open.push_back(service.push(update.data(), values[static_cast<size_t>(i % kWindow)].data(),
                                      momentum_table(kElements), 1, nullptr));
        }
        for (const auto& request : open) ASSERT_TRUE(outcome(service, request).ok());
      });
  std::sort(made.begin(), made.end());
  EXPECT_GE(2 * made.front(), made[kWorkers / 2]) << ::testing::PrintToString(made);
}

}  // namespace
}  // namespace braid::testing

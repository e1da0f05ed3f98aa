// SPDX-License-Identifier: Apache-2.0
// Memory for the bodies of calls: who gets it, and that those who wait hear of it.
#include "parameters/buffers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <vector>

#include "parameters/one_server.h"

namespace braid::testing {
namespace {

class Buffering : public OneServer {
 protected:
  bool gets_buffer(Job& job) {
    job.buffer = server_->acquire(job);
    return job.buffer != nullptr;
  }
};

TEST_F(Buffering, BuffersGoToThoseWhoseTurnComesFirst) {
  make(Mode::kSync, 3, 0, 1);
  RemoteJobs jobs(*server_);
  EXPECT_FALSE(gets_buffer(jobs.of(0))) << "the only buffer is for the values of the beginning";
  install(1);
  EXPECT_FALSE(gets_buffer(jobs.of(1))) << "the only buffer is for worker 0";
  EXPECT_FALSE(gets_buffer(jobs.of(0))) << "an earlier job of worker 0 has a place before this one";
}

TEST_F(Buffering, TheOneThatHasWaitedLongestGetsTheNextBuffer) {
  make(Mode::kAsync, 4, 0, 1);
  install(1);
  RemoteJobs jobs(*server_);
  Job& holder = jobs.of(0);
  ASSERT_TRUE(gets_buffer(holder));
  Job& first = jobs.of(1);
  Job& second = jobs.of(2);
  EXPECT_FALSE(gets_buffer(first));
  EXPECT_FALSE(gets_buffer(second));
  server_->release(holder);
  Job& newest = jobs.of(3);
  EXPECT_FALSE(gets_buffer(newest)) << "two have waited for longer";
  EXPECT_FALSE(gets_buffer(second)) << "one has waited for longer";
  EXPECT_TRUE(gets_buffer(first));
  server_->cancel(second);
  server_->release(first);
  EXPECT_TRUE(gets_buffer(newest)) << "the second one has gone";
  server_->release(newest);
}

// A pull that has come earlier is answered before a push gets memory for its body.
TEST_F(Buffering, PullsStandInTheSameQueue) {
  make(Mode::kAsync, 3, 0, 1);
  install(1);
  RemoteJobs jobs(*server_);
  Job& holder = jobs.of(0);
  ASSERT_TRUE(gets_buffer(holder));
  Job& pull = jobs.of(1, CallKind::kPull);
  server_->submit(pull);
  EXPECT_FALSE(pull.done.load());
  Job& push = jobs.of(2);
  EXPECT_FALSE(gets_buffer(push));
  server_->release(holder);
  EXPECT_TRUE(pull.done.load());
  EXPECT_FALSE(gets_buffer(push)) << "the pull has the buffer";
  server_->release(pull);
  EXPECT_TRUE(gets_buffer(push));
  server_->release(push);
}

// Whoever polls the lanes may sleep, so the bell has to ring.
TEST_F(Buffering, ThoseThatWaitForMemoryHearThatThereIsSome) {
  make(Mode::kSync, 2, 0, 1);
  install(0);
  RemoteJobs jobs(*server_);
  Job& waits = jobs.of(1);
  EXPECT_FALSE(gets_buffer(waits)) << "worker 0 comes first";
  Waiter sleeper(bell_);
  while (!sleeper.before_sleep()) sleeper.idle(Clock::now());
  const uint32_t before = bell_.rings.load();
  call(0, CallKind::kPush, 1);  // by another thread of this process
  EXPECT_NE(bell_.rings.load(), before);
  ASSERT_TRUE(gets_buffer(waits));
  Job& later = jobs.of(0);
  EXPECT_FALSE(gets_buffer(later));
  const uint32_t then = bell_.rings.load();
  server_->release(waits);
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

// SPDX-License-Identifier: Apache-2.0
// Who becomes the owner of a shard whose server was lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "parameters/list.h"
#include "parameters/one_server.h"
#include "support/slowness.h"

namespace braid::testing {
namespace {

class Adoption : public OneServer {
 protected:
  void make(Mode mode, int workers) {
    OneServer::make(mode, workers);
    for (int worker = 0; worker < workers; ++worker) call(worker, CallKind::kFind);
  }
  Verdict ask(int worker, uint64_t version, uint64_t values = kWholeValues, uint64_t moves = 1) {
    return call_with(worker, CallKind::kAdopt, 0,
                     [&](Call& call) {
                       call.base = version;
                       call.steps = values;
                       call.moves = moves;
                     })
        .job.answer.verdict;
  }
};

TEST_F(Adoption, TheWorkerWithTheNewestValuesInstallsTheShard) {
  make(Mode::kAsync, 3);
  EXPECT_EQ(ask(0, 4), Verdict::kWait);
  EXPECT_EQ(ask(1, 9), Verdict::kWait) << "worker 2 has not offered yet";
  EXPECT_EQ(ask(2, 7), Verdict::kWait);
  EXPECT_EQ(ask(0, 4), Verdict::kWait);
  EXPECT_EQ(ask(1, 9), Verdict::kSend);
  EXPECT_TRUE(call(1, CallKind::kInstall, 3, 9).done());
  EXPECT_EQ(ask(0, 4), Verdict::kDone);
  EXPECT_EQ(value(), 3);
  EXPECT_EQ(server_->stats().versions.at(0), 9u);
}

// One worker alone has lost the owner: a link between the two was cut.
TEST_F(Adoption, WaitsForAllWorkersHoweverLongThatTakes) {
  make(Mode::kAsync, 3);
  const auto began = Clock::now();
  while (Clock::now() < began + milliseconds(1500)) {
    ASSERT_EQ(ask(0, 4), Verdict::kWait);
    ASSERT_EQ(ask(1, 4), Verdict::kWait);
    std::this_thread::sleep_for(milliseconds(10));
  }
  server_->dismiss(2, true);
  EXPECT_EQ(ask(1, 5), Verdict::kSend) << "the third one, which still reached the owner, is gone";
}

// It still looks for other servers, and one of them may be the lost one.
TEST_F(Adoption, WaitsForNoWorkerThatHasYetToCall) {
  make(Mode::kAsync, 1);
  ASSERT_TRUE(server_->admit(7, "same").ok());
  EXPECT_EQ(ask(0, 4), Verdict::kSend);
}

TEST_F(Adoption, WholeValuesComeBeforeNewerOnesThatAreMixed) {
  make(Mode::kAsync, 2);
  EXPECT_EQ(ask(0, 9, kMixedValues), Verdict::kWait);
  EXPECT_EQ(ask(1, 4), Verdict::kSend);
}

// After a loss versions count anew from an earlier one. So a larger version may be of a past that is lost.
TEST_F(Adoption, VersionsOfALostPastDoNotCount) {
  make(Mode::kAsync, 2);
  EXPECT_EQ(ask(0, 9, kWholeValues, 1), Verdict::kWait);
  EXPECT_EQ(ask(1, 4, kWholeValues, 2), Verdict::kSend);
}

TEST_F(Adoption, MixedValuesComeBeforeNone) {
  make(Mode::kAsync, 2);
  EXPECT_EQ(ask(0, 0, kNoValues), Verdict::kWait);
  EXPECT_EQ(ask(1, 4, kMixedValues), Verdict::kSend);
}

TEST_F(Adoption, AWorkerThatLacksTheMemoryIsReplaced) {
  make(Mode::kAsync, 2);
  EXPECT_EQ(ask(0, 4), Verdict::kWait);
  EXPECT_EQ(ask(1, 9), Verdict::kSend);
  EXPECT_EQ(ask(1, 9, kNoMemory), Verdict::kWait) << "it cannot carry the shard after all";
  EXPECT_EQ(ask(0, 4), Verdict::kSend);
}

// Its process stood still, and worker 1 told it so. It cannot know whether others have the shard by now.
TEST_F(Adoption, OneThatWasGivenUpTakesNothing) {
  make(Mode::kAsync, 2);
  EXPECT_EQ(ask(0, 4), Verdict::kWait);
  EXPECT_FALSE(server_->is_given_up(0));
  server_->note_given_up(1);
  server_->dismiss(1, true);
  EXPECT_EQ(ask(0, 4), Verdict::kFailed);
  EXPECT_TRUE(server_->is_given_up(0));
  ASSERT_TRUE(server_->admit(1, "same").ok());
  EXPECT_FALSE(server_->is_given_up(0)) << "it has come again";
  EXPECT_EQ(ask(1, 9), Verdict::kSend);
}

// Others were content with this server.
TEST_F(Adoption, OneThatWasGivenUpByOneWorkerServesTheOthersToTheEnd) {
  make(Mode::kAsync, 3);
  install(7);
  server_->note_given_up(1);
  server_->dismiss(1, true);
  EXPECT_TRUE(call(2, CallKind::kPushPull, 1).done());
  EXPECT_FALSE(server_->is_given_up(0)) << "worker 2 is there";
  server_->dismiss(2, false);
  EXPECT_FALSE(server_->is_given_up(0)) << "worker 2 has left in good order";
}

TEST_F(Adoption, WithoutAnyValuesFails) {
  make(Mode::kAsync, 2);
  EXPECT_EQ(ask(0, 0, kNoValues), Verdict::kWait);
  EXPECT_EQ(ask(1, 0, kNoMemory), Verdict::kSend) << "it has values";
  EXPECT_EQ(ask(1, 0, kNoValues), Verdict::kFailed);
  EXPECT_EQ(ask(0, 0, kNoValues), Verdict::kFailed);
}

class Successor : public EveryWire {};
INSTANTIATE_TEST_SUITE_P(Wires, Successor, ::testing::ValuesIn(wires()), wire_name);

// Member 0 takes over from member 2, and makes no call until the others have gone on.
TEST_P(Successor, TakesOverWhileItsWorkerComputes) {
  constexpr size_t kElements = 3000;
  std::atomic<int> begun{0};
  std::atomic<bool> has_gone_on{false};
  at_all_places(3, options(), [&](const Place& place) {
    auto service = must_create(setup_of(place, kElements));
    ASSERT_NE(service, nullptr);
    std::vector<float> values(kElements, 7.0f);
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
    }
    ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
    ++begun;
    while (begun.load() < 3) std::this_thread::yield();
    if (place.rank == 2) return service.reset();
    const auto limit_at = Clock::now() + limit(milliseconds(20'000));
    if (place.rank == 0) {
      while (!has_gone_on.load() && Clock::now() < limit_at) std::this_thread::sleep_for(milliseconds(1));
      EXPECT_TRUE(has_gone_on.load());
    } else {
      const std::vector<float> update(kElements, -1.0f);
      for (int i = 0; i < 20; ++i) {
        const auto request = service->push(update.data(), values.data(), table_of(kElements, 1), 1, nullptr);
        ASSERT_EQ(service->wait(*request, limit_at, {}), Waited::kDone);
        ASSERT_TRUE(request->status().ok()) << request->status().message();
      }
      EXPECT_EQ(service->stats().homes, (std::vector<int>{0, 1, 0}));
      has_gone_on = true;
    }
    service->close(milliseconds(20'000), {});
  });
}

// Of three members one dies when worker 0 has installed its values, and nobody has pulled any. Then the others pull.
void pull_after_the_death_of(int member, const Options& options,
                             const std::function<void(const Status&, const std::vector<float>&)>& check) {
  constexpr size_t kElements = 3000;
  std::atomic<bool> has_died{false};
  at_all_places(3, options, [&](const Place& place) {
    auto service = must_create(setup_of(place, kElements));
    ASSERT_NE(service, nullptr);
    const std::vector<float> initial(kElements, 7.0f);
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->install(initial.data())).ok());
    }
    if (place.rank == member) {
      while (service->stats().server.versions.empty()) std::this_thread::yield();
      service.reset();
      has_died = true;
      return;
    }
    while (!has_died.load()) std::this_thread::yield();
    std::vector<float> values(kElements);
    const Status pulled = outcome(*service, service->pull(values.data()));
    check(pulled, values);
    service->close(milliseconds(20'000), {});
  });
}

TEST_P(Successor, BeginsWithTheInstalledValues) {
  pull_after_the_death_of(2, options(), [](const Status& pulled, const std::vector<float>& values) {
    EXPECT_TRUE(pulled.ok()) << pulled.message();
    EXPECT_EQ(values, std::vector<float>(values.size(), 7.0f));
  });
}

// Worker 0 alone knew them.
TEST_P(Successor, WithoutAnyValuesEndsTheService) {
  pull_after_the_death_of(0, options(), [](const Status& pulled, const std::vector<float>&) {
    EXPECT_EQ(pulled.code(), Code::kPeerLost) << pulled.message();
    EXPECT_NE(pulled.message().find("no worker has values of shard 0"), std::string::npos) << pulled.message();
  });
}

// Workers 7 and 8 died when they had entered their numbers in the list of those that come late.
TEST_P(Successor, OfDeadLateWorkersDoesNotWaitForThem) {
  constexpr size_t kElements = 100;
  std::atomic<int> begun{0};
  std::atomic<bool> is_over{false};
  at_all_places(3, options(), [&](const Place& place) {
    ServiceSetup setup = setup_of(place, kElements);
    setup.workers = 2;
    setup.servers = {0, 1};
    if (place.rank == 2) {
      while (begun.load() < 2) std::this_thread::yield();
      for (const char* dead : {"7", "8"}) ASSERT_TRUE(write_in_list(setup.name, *place.store, dead).ok());
      setup.member = 9;
      setup.is_late = true;
    }
    auto service = must_create(std::move(setup));
    ASSERT_NE(service, nullptr);
    std::vector<float> values(kElements, 7.0f);
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
    }
    ++begun;
    std::fill(values.begin(), values.end(), 0.0f);
    ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
    EXPECT_EQ(values, std::vector<float>(kElements, 7.0f));
    if (place.rank == 2) is_over = true;
    while (!is_over.load()) std::this_thread::sleep_for(milliseconds(1));
    service->close(milliseconds(20'000), {});
  });
}

}  // namespace
}  // namespace braid::testing

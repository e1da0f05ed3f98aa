// SPDX-License-Identifier: Apache-2.0
// Aggregators and a group's first rank, who find each other through a store.
#include "aggregator/registry.h"

#include <algorithm>
#include <thread>

#include "communicator/ranks.h"

namespace braid::testing {
namespace {

using Answer = Candidacy::Answer;
using Tickets = std::vector<std::string>;

const std::string kKeys = "braid/servers/";

// From some call on it fails; with what, is for the caller to see.
class FailingStore final : public Store {
 public:
  explicit FailingStore(int calls) : calls_left_(calls) {}
  Status set(const std::string& key, const std::string& value) override {
    return calls_left_-- > 0 ? store_.set(key, value) : kGone;
  }
  Result<std::string> get(const std::string& key, milliseconds timeout) override {
    if (calls_left_-- > 0) return store_.get(key, timeout);
    return kGone;
  }
  void fail_after(int calls) { calls_left_ = calls; }

 private:
  const Status kGone{Code::kSystem, "the store is gone"};
  MemoryStore store_;
  int calls_left_;
};

class RegistryTest : public ::testing::Test {
 protected:
  std::string slot(int k) { return store_->get(kKeys + "slot/" + std::to_string(k), milliseconds(1)).value(); }
  bool has_slot(int k) { return store_->get(kKeys + "slot/" + std::to_string(k), milliseconds(1)).ok(); }
  static Deadline soon(int ms = 300) { return Clock::now() + milliseconds(ms); }

  const std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  Registry registry_{store_};
};

TEST_F(RegistryTest, NewcomersAreToldOnce) {
  EXPECT_TRUE(registry_.newcomers().value().empty());
  Candidacy first(store_), second(store_);
  ASSERT_TRUE(first.offer().ok());
  EXPECT_EQ(registry_.newcomers().value(), Tickets({slot(0)}));
  EXPECT_TRUE(registry_.newcomers().value().empty());
  ASSERT_TRUE(second.offer().ok());
  EXPECT_EQ(registry_.newcomers().value(), Tickets({slot(1)}));
  const std::string before = slot(0);
  ASSERT_TRUE(first.offer().ok());  // free again, in its place
  EXPECT_NE(slot(0), before);
  EXPECT_EQ(registry_.newcomers().value(), Tickets({slot(0)}));
  EXPECT_FALSE(has_slot(2));
  EXPECT_EQ(Registry(store_).newcomers().value(), Tickets({slot(0), slot(1)}));
}

TEST_F(RegistryTest, WhoAnswersIsAppointed) {
  constexpr size_t kServers = 3;
  Appointment places[kServers];
  std::vector<std::thread> servers;
  for (Appointment& place : places) {
    servers.emplace_back([&] {
      Candidacy candidacy(store_);
      ASSERT_TRUE(candidacy.offer().ok());
      const auto answer = candidacy.await(soon(20'000), &place);
      ASSERT_TRUE(answer.ok()) << answer.status().message();
      EXPECT_EQ(answer.value(), Answer::kAppointed);
    });
  }
  Tickets tickets;
  while (tickets.size() < kServers) {
    auto newcomers = registry_.newcomers();
    for (std::string& ticket : newcomers.value()) tickets.push_back(std::move(ticket));
  }
  tickets.insert(tickets.begin(), "dead");  // who is behind it has time all the same
  const Tickets willing = registry_.ask(tickets, soon(2000));
  EXPECT_EQ(willing, Tickets(tickets.begin() + 1, tickets.end()));
  Appointment appointment;
  appointment.group = "a group/of any name";
  appointment.ranks = 5;
  appointment.chunk_bytes = 4096;
  appointment.window = 3;
  appointment.links = "assume";
  EXPECT_TRUE(registry_.appoint(willing, appointment).ok());
  for (std::thread& server : servers) server.join();
  std::vector<int> indexes;
  for (const Appointment& place : places) {
    indexes.push_back(place.index);
    EXPECT_EQ(place.aggregators, static_cast<int>(kServers));
    EXPECT_EQ(place.group, appointment.group);
    EXPECT_EQ(place.ranks, 5);
    EXPECT_EQ(place.chunk_bytes, 4096);
    EXPECT_EQ(place.window, 3);
    EXPECT_EQ(place.links, "assume");
  }
  std::sort(indexes.begin(), indexes.end());
  EXPECT_EQ(indexes, std::vector<int>({0, 1, 2}));
}

TEST_F(RegistryTest, WhoIsNotAskedWaitsOn) {
  Candidacy candidacy(store_);
  Appointment place;
  ASSERT_TRUE(candidacy.offer().ok());
  const std::string ticket = slot(0);
  for (int i = 0; i < 3; ++i) {
    const auto answer = candidacy.await(soon(5), &place);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_EQ(answer.value(), Answer::kNotYet);
  }
  EXPECT_EQ(slot(0), ticket);
}

// A ticket is used up by being asked, also for a first rank that has never seen it: another group's, or the same job's
// after a restart.
TEST_F(RegistryTest, AnOldAnswerIsNone) {
  Candidacy candidacy(store_);
  ASSERT_TRUE(candidacy.offer().ok());
  std::thread server([&] {
    Appointment place;
    EXPECT_TRUE(candidacy.await(soon(20'000), &place).ok());
  });
  const Tickets willing = registry_.ask(registry_.newcomers().value(), soon(20'000));
  EXPECT_EQ(willing.size(), 1u);
  Appointment appointment;
  appointment.group = "first";
  EXPECT_TRUE(registry_.appoint(willing, appointment).ok());
  server.join();
  Registry other(store_);
  EXPECT_TRUE(other.newcomers().value().empty()) << "who was asked has left its slot";
  EXPECT_TRUE(other.ask(willing, soon()).empty());
}

TEST_F(RegistryTest, CandidatesThatComeAtOnceHaveASlotEach) {
  constexpr size_t kServers = 4;
  std::vector<std::unique_ptr<Candidacy>> candidates;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kServers; ++i) candidates.push_back(std::make_unique<Candidacy>(store_));
  for (const auto& candidate : candidates) {
    threads.emplace_back([&] {
      const Status status = candidate->offer();
      EXPECT_TRUE(status.ok()) << status.message();
    });
  }
  for (std::thread& thread : threads) thread.join();
  Appointment place;
  for (const auto& candidate : candidates) {
    EXPECT_EQ(candidate->await(soon(5), &place).value(), Answer::kNotYet);
  }
  Tickets tickets = Registry(store_).newcomers().value();
  EXPECT_EQ(tickets.size(), kServers);
  std::sort(tickets.begin(), tickets.end());
  EXPECT_EQ(std::unique(tickets.begin(), tickets.end()), tickets.end());
}

// The last to write has the slot, however late it is.
TEST_F(RegistryTest, WhoseSlotIsLostTakesAnother) {
  Candidacy candidacy(store_);
  Appointment place;
  ASSERT_TRUE(candidacy.offer().ok());
  const std::string ticket = slot(0);
  ASSERT_TRUE(store_->set(kKeys + "slot/0", "another").ok());
  EXPECT_EQ(candidacy.await(soon(5), &place).value(), Answer::kNotYet);
  EXPECT_EQ(slot(0), "another");
  EXPECT_EQ(slot(1), ticket);
}

TEST_F(RegistryTest, TheSlotOfOneThatLeftIsTakenAgain) {
  Candidacy first(store_), second(store_), third(store_);
  first.withdraw();  // who never came changes nothing
  EXPECT_FALSE(has_slot(0));
  ASSERT_TRUE(first.offer().ok());
  ASSERT_TRUE(second.offer().ok());
  first.withdraw();
  EXPECT_EQ(slot(0), "");
  EXPECT_EQ(registry_.newcomers().value(), Tickets({slot(1)})) << "and hides nobody";
  ASSERT_TRUE(third.offer().ok());
  const std::string taken = slot(0);
  EXPECT_NE(taken, "");
  ASSERT_TRUE(first.offer().ok());
  EXPECT_EQ(slot(0), taken) << "who comes back has lost its slot";
  EXPECT_NE(slot(2), "");
  EXPECT_EQ(registry_.newcomers().value(), Tickets({slot(0), slot(2)}));
}

TEST_F(RegistryTest, SlotsMayRunOut) {
  for (int k = 0; k < kMostServers; ++k) {
    ASSERT_TRUE(store_->set(kKeys + "slot/" + std::to_string(k), "ticket" + std::to_string(k)).ok());
  }
  Candidacy candidacy(store_);
  const Status status = candidacy.offer();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_TRUE(says(status, "all 64 places")) << status.message();
  EXPECT_EQ(registry_.newcomers().value().size(), static_cast<size_t>(kMostServers));
  candidacy.withdraw();
  EXPECT_EQ(slot(0), "ticket0");
  ASSERT_TRUE(store_->set(kKeys + "slot/63", "").ok());
  EXPECT_TRUE(candidacy.offer().ok());
}

TEST_F(RegistryTest, AnAppointmentThatMakesNoSenseIsNone) {
  const std::string good = "4\n2\n1\n0\n4\nassume\nworld/servers/1";
  const auto answer_to = [&](const std::string& text) {
    Candidacy candidacy(store_);
    EXPECT_TRUE(candidacy.offer().ok());
    const std::string ticket = slot(0);
    EXPECT_TRUE(store_->set(kKeys + "ask/" + ticket, "join?").ok());
    EXPECT_TRUE(store_->set(kKeys + "place/" + ticket, text).ok());
    Appointment place;
    const auto answer = candidacy.await(soon(), &place);
    candidacy.withdraw();
    EXPECT_TRUE(answer.ok()) << text;
    if (answer.ok() && answer.value() == Answer::kUnreadable) EXPECT_TRUE(place.group.empty()) << text;
    return answer.value();
  };
  EXPECT_EQ(answer_to(good), Answer::kAppointed);
  EXPECT_EQ(answer_to("4\n2\n1\n0\n4\n\nworld"), Answer::kAppointed) << "links may be empty";
  for (const char* wrong : {"", "\n\n\n\n\n\n\n", "what is this?", "4\n2\n1\n0\n4\nassume\n", "4\n2\n1\n0\n4",
                            "0\n2\n1\n0\n4\n\nworld", "4\n0\n0\n0\n4\n\nworld", "4\n2\n2\n0\n4\n\nworld",
                            "4\n2\n-1\n0\n4\n\nworld", "4 \n2\n1\n0\n4\n\nworld", "4\n2\n1\n0x\n4\n\nworld",
                            "4\n2\n1\n0\n99999999999\n\nworld", "\n2\n1\n0\n4\n\nworld"}) {
    EXPECT_EQ(answer_to(wrong), Answer::kUnreadable) << wrong;
  }
  EXPECT_EQ(answer_to(std::string("\0\xff\xfe\n", 4) + good), Answer::kUnreadable);
  EXPECT_EQ(answer_to(std::string(100'000, '4')), Answer::kUnreadable);
}

TEST(RegistryStore, ItsFailureIsTheCandidates) {
  const auto expect_gone = [](const Status& status) {
    EXPECT_EQ(status.code(), Code::kSystem);
    EXPECT_TRUE(says(status, "the store is gone")) << status.message();
  };
  for (const int calls : {0, 1, 2}) {  // look, take, and see that it is ours
    Candidacy candidacy(std::make_shared<FailingStore>(calls));
    expect_gone(candidacy.offer());
    candidacy.withdraw();
  }
  for (const int calls : {0, 1, 2}) {  // asked, says yes, and waits for its place
    auto store = std::make_shared<FailingStore>(1000);
    Candidacy candidacy(store);
    ASSERT_TRUE(candidacy.offer().ok());
    const auto ticket = store->get(kKeys + "slot/0", milliseconds(1));
    ASSERT_TRUE(store->set(kKeys + "ask/" + ticket.value(), "join?").ok());
    store->fail_after(calls);
    Appointment place;
    expect_gone(candidacy.await(Clock::now() + milliseconds(300), &place).status());
  }
}

TEST(RegistryStore, ItsFailureIsToldTheFirstRank) {
  auto store = std::make_shared<FailingStore>(1000);
  Registry registry(store);
  Candidacy candidacy(store);
  ASSERT_TRUE(candidacy.offer().ok());
  store->fail_after(0);
  EXPECT_EQ(registry.newcomers().status().code(), Code::kSystem);
  EXPECT_TRUE(registry.ask({"somebody", "else"}, Clock::now() + milliseconds(300)).empty());
  EXPECT_EQ(registry.appoint({"somebody"}, {}).code(), Code::kSystem);
  store->fail_after(1000);
  EXPECT_EQ(registry.newcomers().value().size(), 1u) << "who was not seen then is seen now";
}

}  // namespace
}  // namespace braid::testing

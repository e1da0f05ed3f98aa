// SPDX-License-Identifier: Apache-2.0
// A second copy of each shard, and the remains of a server that vanishes. Members are threads: one "dies" by ending its
// service without a word to its workers.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "parameters/copier.h"
#include "parameters/services.h"

namespace braid::testing {
namespace {

constexpr size_t kCopied = 300;
constexpr int kOwners = 3;
constexpr int kMostUnseen = 16 + kOwners;  // the copy is 16 updates old at most
constexpr milliseconds kCopyLimit{20'000};

ServiceSetup setup_with_copies(const Place& place, const std::string& rule, Mode mode) {
  ServiceSetup setup = setup_of(place, kCopied, rule);
  setup.server.replicas = 1;
  setup.server.mode = mode;
  return setup;
}

// Waits until the backup has the newest version of all shards of this member.
void await_copies(ParameterService& service) {
  const auto began = Clock::now();
  for (;;) {
    const auto told = service.stats().server;
    if (!told.copied.empty() && told.copied == told.versions) return;
    ASSERT_LT(Clock::now(), began + kCopyLimit);
    std::this_thread::sleep_for(milliseconds(1));
  }
}

class CopyBarrier {
 public:
  explicit CopyBarrier(int count) : count_(count) {}
  void wait() {
    const int round = arrived_.fetch_add(1) / count_;
    while (arrived_.load() < (round + 1) * count_) std::this_thread::yield();
  }

 private:
  const int count_;
  std::atomic<int> arrived_{0};
};

class Replica : public EveryWire {};
INSTANTIATE_TEST_SUITE_P(Wires, Replica, ::testing::ValuesIn(wires()), wire_name);

// One server after the other vanishes between two steps. Momentum goes on as if nothing had happened.
TEST_P(Replica, KeepsTheStateOfTheRule) {
  constexpr int kSteps = 6;
  CopyBarrier all(kOwners), two(kOwners - 1);
  at_all_places(kOwners, options(), [&](const Place& place) {
    auto service = must_create(setup_with_copies(place, "sgd:momentum", Mode::kSync));
    ASSERT_NE(service, nullptr);
    std::vector<float> values(kCopied);
    const std::vector<float> update(kCopied, 1.0f);
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
    }
    int steps = 0;
    const auto train = [&] {
      for (int i = 0; i < kSteps; ++i) {
        const Status done =
            outcome(*service, service->push(update.data(), values.data(), momentum_table(kCopied), 1, nullptr));
        ASSERT_TRUE(done.ok()) << done.message();
        ASSERT_EQ(values, std::vector<float>(kCopied, after_momentum(++steps)));
      }
    };
    // A push on its way to a server that dies is lost. So these learn of the death by a pull.
    const auto await_home = [&](size_t shard, int home) {
      const auto began = Clock::now();
      while (service->stats().homes[shard] != home) {
        ASSERT_LT(Clock::now(), began + kCopyLimit);
        ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
      }
      ASSERT_EQ(values, std::vector<float>(kCopied, after_momentum(steps)));
    };
    train();
    await_copies(*service);
    all.wait();
    if (place.rank == 1) return service.reset();
    await_home(1, 2);
    two.wait();
    train();
    if (place.rank == 2) {  // it holds two shards, and has found another backup
      await_copies(*service);
      EXPECT_EQ(service->stats().server.versions.size(), 2U);
    }
    two.wait();
    if (place.rank == 2) return service.reset();
    await_home(1, 0);
    await_home(2, 0);
    train();
    EXPECT_EQ(service->stats().homes, (std::vector<int>{0, 0, 0}));
    EXPECT_EQ(service->stats().lost_parts, 0U);
    service->close(kCopyLimit, {});
  });
}

// A server vanishes in the middle of pushes. What was pushed is there at most once, and versions never fall.
TEST_P(Replica, AppliesNothingTwice) {
  std::atomic<bool> is_gone{false};
  std::atomic<int> begun{0};
  std::atomic<int> pushes{0};
  std::atomic<uint64_t> lost{0};
  CopyBarrier two(kOwners - 1);
  at_all_places(kOwners, options(), [&](const Place& place) {
    auto service = must_create(setup_with_copies(place, "sgd", Mode::kAsync));
    ASSERT_NE(service, nullptr);
    std::vector<float> values(kCopied);
    const std::vector<float> update(kCopied, -1.0f);
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
    }
    std::vector<uint64_t> versions(kOwners);
    const auto step = [&] {
      ++pushes;
      const auto request = service->push(update.data(), values.data(), table_of(kCopied, 1), 1, nullptr);
      const Status done = outcome(*service, request);
      ASSERT_TRUE(done.ok()) << done.message();
      for (size_t shard = 0; shard < versions.size(); ++shard) {
        ASSERT_GE(request->versions()[shard], versions[shard]);
      }
      versions = request->versions();
    };
    for (int i = 0; i < 50; ++i) step();
    await_copies(*service);
    ++begun;
    while (begun.load() < kOwners) step();
    if (place.rank == 2) {
      for (int i = 0; i < 7; ++i) step();
      service.reset();
      is_gone = true;
      return;
    }
    while (!is_gone.load()) step();
    for (int i = 0; i < 30; ++i) step();
    lost += service->stats().lost_parts;
    two.wait();
    ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
    const auto most = static_cast<float>(pushes.load());
    // Nobody else may have seen what the member that vanished pushed last, and parts of unfinished requests.
    const auto least = most - static_cast<float>(lost.load()) - kMostUnseen;
    for (const float value : values) {
      ASSERT_TRUE(std::isfinite(value));
      ASSERT_LE(value, most);
      ASSERT_GE(value, least);
    }
    two.wait();
    service->close(kCopyLimit, {});
  });
}

// ---- One owner and one backup, played by this thread

constexpr size_t kOfShard = 4;

struct CopyCall {
  Job job;
  Table table{{kOfShard, with_rate(1)}};
  std::vector<float> body;

  CopyCall(Server& server, int worker, CallKind kind, std::vector<float> sent) : body(std::move(sent)) {
    job.worker = worker;
    job.call.kind = kind;
    job.call.count = kOfShard;
    job.table = &table;
    job.update = body.data();
    server_ = &server;
  }
  CopyCall& go() {
    server_->submit(job);
    return *this;
  }

 private:
  Server* server_;
};

class OwnerAndBackup : public ::testing::Test {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.rule = rule_from_text("sgd:momentum").value();
    options.settings = "same";
    options.replicas = 1;
    for (auto* server : {&owner_, &backup_}) {
      *server = std::make_unique<Server>(options, std::vector<Extent>{{0, kOfShard}}, bell_);
      ASSERT_TRUE((*server)->admit(0, "same").ok());
    }
    ASSERT_TRUE(backup_->admit(source_number(0), "same").ok());
    install(*owner_);
    owner_->set_backup(true);
  }
  void install(Server& server) {
    ASSERT_TRUE(CopyCall(server, 0, CallKind::kInstall, std::vector<float>(kOfShard, 1.0f)).go().job.done);
  }
  // Sends a copy; the backup's answer.
  Answer send(const Server::Copy& copy) {
    CopyCall replica(*backup_, source_number(0), CallKind::kReplica, copy.numbers);
    replica.job.call.hand_over = HandOver::kYes;
    replica.job.call.base = copy.version;
    replica.job.call.moves = copy.moves;
    EXPECT_TRUE(replica.go().job.done);
    return replica.job.answer;
  }

  DoorbellWord bell_{};
  std::unique_ptr<Server> owner_, backup_;
};

TEST_F(OwnerAndBackup, AServerThatWasNotReachedIsTriedAgainAfterTheOthers) {
  Copier copier(*owner_, 0, 3);
  for (const int expected : {1, 2, 1, 2, 1, 2}) {
    ASSERT_EQ(copier.needs_backup(), expected);
    ASSERT_EQ(copier.needs_backup(), -1) << "one is looked for already";
    copier.missed(expected);
  }
  EXPECT_EQ(copier.needs_backup(), -1) << "three times are enough";
  copier.grow(4);
  EXPECT_EQ(copier.needs_backup(), 3);
}

TEST_F(OwnerAndBackup, TheCopyLagsByAFewUpdatesAtMost) {
  Server::Copy copy;
  ASSERT_TRUE(owner_->take_copy(copy));
  owner_->note_copy(copy);
  EXPECT_FALSE(owner_->take_copy(copy)) << "nothing has changed";
  std::vector<std::unique_ptr<CopyCall>> pushes;
  for (int i = 0; i < 20; ++i) {
    pushes.push_back(std::make_unique<CopyCall>(*owner_, 0, CallKind::kPush, std::vector<float>(kOfShard, 1.0f)));
    pushes.back()->go();
  }
  const auto done = [&] {
    return std::count_if(pushes.begin(), pushes.end(), [](const auto& push) { return push->job.done.load(); });
  };
  EXPECT_EQ(done(), 16);
  ASSERT_TRUE(owner_->take_copy(copy));
  EXPECT_EQ(copy.version, 16U);
  EXPECT_EQ(done(), 16) << "it waits until the backup has the copy";
  owner_->note_copy(copy);
  EXPECT_EQ(done(), 20);
  owner_->set_backup(false);
}

TEST_F(OwnerAndBackup, AnOwnerThatReturnsIsFenced) {
  Server::Copy copy;
  ASSERT_TRUE(owner_->take_copy(copy));
  EXPECT_EQ(send(copy).verdict, Verdict::kDone);
  CopyCall adopt(*backup_, 0, CallKind::kAdopt, {});
  adopt.job.call.moves = 1;
  EXPECT_TRUE(adopt.go().job.done);
  EXPECT_EQ(adopt.job.answer.verdict, Verdict::kDone) << "from the copy: nobody has to bring values";
  const Answer answer = send(copy);
  EXPECT_EQ(answer.verdict, Verdict::kFailed);
  EXPECT_EQ(answer.is_owner, 1U);
  owner_->give_way(0, 1, answer.moves, answer.steps);
  CopyCall push(*owner_, 0, CallKind::kPush, std::vector<float>(kOfShard, 1.0f));
  EXPECT_TRUE(push.go().job.done);
  EXPECT_EQ(push.job.answer.has_moved, 1);
  EXPECT_EQ(push.job.answer.moved_to, 2U) << "1 + the place of the new owner";
  EXPECT_EQ(push.job.answer.shard_version, copy.version) << "newer updates are lost";
  EXPECT_FALSE(owner_->take_copy(copy)) << "it sends no more copies";
}

TEST_F(OwnerAndBackup, ACopyOfAnEarlierOwnerIsNotTaken) {
  Server::Copy copy;
  ASSERT_TRUE(owner_->take_copy(copy));
  send(copy);
  CopyCall adopt(*backup_, 0, CallKind::kAdopt, {});
  adopt.job.call.moves = 3;  // the shard has moved twice since
  adopt.job.call.steps = kWholeValues;
  adopt.go();
  EXPECT_EQ(adopt.job.answer.verdict, Verdict::kSend);
}

TEST(Replicas, NeedAnotherServerAndWholeUpdates) {
  ServiceSetup setup;
  setup.servers = {0};
  setup.server.replicas = 1;
  EXPECT_TRUE(says(check(setup), "replicas=1 needs two servers or more")) << check(setup).message();
  setup.servers = {0, 1};
  EXPECT_TRUE(check(setup).ok());
  setup.server.replicas = 2;
  EXPECT_TRUE(says(check(setup), "replicas is 2, expected 0, or 1"));
  setup.server.replicas = 1;
  setup.server.consistency = Consistency::kRelaxed;
  EXPECT_TRUE(says(check(setup), "replicas=1 needs atomic consistency"));
}

}  // namespace
}  // namespace braid::testing

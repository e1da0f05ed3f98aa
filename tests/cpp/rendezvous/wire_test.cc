// SPDX-License-Identifier: Apache-2.0
// A wire that the house does not know: the rendezvous finds it, prefers it, and does without it, as with any other.
#include "transport/wire.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <utility>

#include "engine/wires.h"
#include "rendezvous/rendezvous.h"
#include "support/memory_store.h"
#include "support/slowness.h"
#include "transport/loopback/loopback.h"

namespace braid::testing {
namespace {

constexpr int kRanks = 3;

// What the Twines of a group share.
struct TwineBall {
  LoopbackHub hub{kRanks, {}};
  bool must_try = false;
  bool excludes = false;
  std::set<std::pair<Node, Node>> refused;  // from, to
};

// A third wire, over queues in memory.
class Twine final : public Wire {
 public:
  Twine(TwineBall& ball, Node rank, FrameSink& sink, DoorbellWord& bell)
      : ball_(ball), rank_(rank), sink_(sink), bell_(bell) {}

  std::string_view name() const override { return "twine"; }
  Result<std::string> offer() override { return "end " + std::to_string(rank_) + " of it"; }
  Status join(const std::string& group, const std::string& secret, const std::vector<WirePeer>& peers) override {
    EXPECT_NE(group, "");
    EXPECT_EQ(secret.size(), kSecretDigits);
    EXPECT_EQ(peers.size(), static_cast<size_t>(kRanks));
    return {};
  }
  std::string excludes(const WirePeer&) const override { return ball_.excludes ? "it is cut" : ""; }
  bool must_try() const override { return ball_.must_try; }
  Reach reach(Node peer, const std::string&) override {
    if (ball_.refused.contains({rank_, peer})) return {Reach::kNone, "out of reach"};
    return {static_cast<char>('a' + rank_), ""};
  }
  Result<std::unique_ptr<Channel>> connect(Node peer, const std::string& offer, char theirs) override {
    EXPECT_EQ(offer, "end " + std::to_string(peer) + " of it");
    EXPECT_EQ(theirs, ball_.must_try ? static_cast<char>('a' + peer) : Reach::kReached);
    return ball_.hub.channel(rank_, peer, sink_, bell_);
  }
  std::string describe(Node, const std::string& offer) const override { return "twine, " + offer; }
  std::string nic_of(const std::string&) const override { return "spool"; }
  NicRates take_rates() override { return {10, 20}; }

 private:
  TwineBall& ball_;
  const Node rank_;
  FrameSink& sink_;
  DoorbellWord& bell_;
};

// One rank's side of a group.
struct Side {
  Wires wires;
  Status formed;
  bool has_board = false;
};

class WireTest : public ::testing::Test {
 protected:
  // Forms a group. Twine is the first or the last wire, besides the house's own. Then every rank sends one message to
  // each other rank.
  void form(bool twine_first) {
    Options options;
    options.timeout = limit(milliseconds(20'000));
    options.transports = transports_;
    options.interface = "127.0.0.1";
    std::vector<std::thread> threads;
    for (Node rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        auto made = Engine::create(options);
        ASSERT_TRUE(made.ok()) << made.status().message();
        auto& engine = static_cast<EngineImpl&>(*made.value());
        Side& side = sides_[static_cast<size_t>(rank)];
        Mailbox mailbox(rank, kRanks, engine.bell());
        side.wires.list = make_wires(engine, options, rank, kRanks, mailbox);
        auto twine = std::make_unique<Twine>(ball_, rank, mailbox, engine.bell());
        auto& list = side.wires.list;
        list.insert(twine_first ? list.begin() : list.end(), std::move(twine));
        side.formed = run_rendezvous(engine, store_, rank, kRanks, "test", options, mailbox, side.wires);
        if (side.formed.ok()) talk(mailbox, rank);
        rates_[static_cast<size_t>(rank)] = side.wires.take_rates();
        side.has_board = side.wires.board != nullptr;
        leave_together();
        mailbox.close();
        side.wires.leave();
        side.wires.board.reset();
        side.wires.list.clear();  // before the mailbox and the engine
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void talk(Mailbox& mailbox, Node rank) {
    std::vector<uint64_t> sent(kRanks), received(kRanks);
    std::vector<Request> requests(2 * kRanks);
    for (Node peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      const auto i = static_cast<size_t>(peer);
      sent[i] = static_cast<uint64_t>(100 * rank + peer);
      mailbox.recv(peer, {kPointToPoint, 0}, std::as_writable_bytes(std::span(&received[i], 1)), &requests[2 * i]);
      mailbox.send(peer, {kPointToPoint, 0}, std::as_bytes(std::span(&sent[i], 1)), &requests[2 * i + 1]);
    }
    const Deadline deadline = deadline_after(milliseconds(20'000));
    for (const Request& request : requests) {
      while (!request.done() && Clock::now() < deadline) mailbox.poll();
      ASSERT_TRUE(request.done());
      ASSERT_TRUE(request.status().ok()) << request.status().message();
    }
    for (Node peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      EXPECT_EQ(received[static_cast<size_t>(peer)], static_cast<uint64_t>(100 * peer + rank));
    }
  }

  // No rank leaves before all have got their messages.
  void leave_together() {
    std::unique_lock lock(mutex_);
    if (++ready_ == kRanks) all_ready_.notify_all();
    all_ready_.wait(lock, [&] { return ready_ == kRanks; });
  }

  const std::string& description(Node rank, Node peer) const {
    return sides_[static_cast<size_t>(rank)].wires.descriptions[static_cast<size_t>(peer)];
  }
  void expect_formed() const {
    for (const Side& side : sides_) EXPECT_TRUE(side.formed.ok()) << side.formed.message();
  }

  TwineBall ball_;
  std::string transports_ = "tcp";
  MemoryStore store_;
  std::vector<Side> sides_ = std::vector<Side>(kRanks);
  std::vector<NicRates> rates_ = std::vector<NicRates>(kRanks);

 private:
  std::mutex mutex_;
  std::condition_variable all_ready_;
  int ready_ = 0;
};

TEST_F(WireTest, TheFirstOfTheListIsPreferred) {
  form(true);
  expect_formed();
  EXPECT_EQ(description(0, 1), "rank 1: twine, end 1 of it");
  EXPECT_EQ(description(2, 0), "rank 0: twine, end 0 of it");
  EXPECT_NE(store_.get("braid/test/card/1", milliseconds(1)).value().find("\nwire twine=end 1 of it\n"),
            std::string::npos);
  // Links are remembered by the NICs of all wires.
  const std::string& address = sides_[0].wires.host_addresses[1];
  EXPECT_TRUE(address.ends_with(" spool 127.0.0.1")) << address;
  EXPECT_EQ(rates_[0].down_bytes_per_s, 20);
}

TEST_F(WireTest, TheLastOfTheListIsLeftOutWhereAnotherReaches) {
  form(false);
  expect_formed();
  for (Node peer = 1; peer < kRanks; ++peer) {
    EXPECT_NE(description(0, peer).find(": tcp 127.0.0.1:"), std::string::npos) << description(0, peer);
  }
}

TEST_F(WireTest, APairThatOneSideRefusesTakesTheNextWire) {
  ball_.must_try = true;
  ball_.refused = {{0, 2}};
  form(true);
  expect_formed();
  EXPECT_EQ(description(0, 1), "rank 1: twine, end 1 of it");
  EXPECT_EQ(description(2, 1), "rank 1: twine, end 1 of it");
  EXPECT_NE(description(0, 2).find("rank 2: tcp 127.0.0.1:"), std::string::npos) << description(0, 2);
  EXPECT_TRUE(description(0, 2).ends_with(" (no twine: out of reach)")) << description(0, 2);
  EXPECT_TRUE(description(2, 0).ends_with(" (no twine: rank 0 says: out of reach)")) << description(2, 0);
}

TEST_F(WireTest, RanksThatNoWireJoinsHearWhatEachWireSays) {
  ball_.excludes = true;
  transports_ = "";
  form(true);
  for (const Side& side : sides_) {
    EXPECT_EQ(side.formed.code(), Code::kUnsupported);
    EXPECT_NE(side.formed.message().find("no wire joins ranks"), std::string::npos) << side.formed.message();
    EXPECT_NE(side.formed.message().find("twine: it is cut, and no other wire"), std::string::npos)
        << side.formed.message();
  }
}

TEST_F(WireTest, BoardsAreSharedWhateverWireCarriesMessages) {
  transports_ = "shm,tcp";
  form(true);
  expect_formed();
  EXPECT_EQ(description(0, 1), "rank 1: twine, end 1 of it");
  for (const Side& side : sides_) EXPECT_TRUE(side.has_board);
}

}  // namespace
}  // namespace braid::testing

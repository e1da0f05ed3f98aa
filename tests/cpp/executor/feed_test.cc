// SPDX-License-Identifier: Apache-2.0
// Operations whose inputs come while they run.
#include "base/feed.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "executor/rehearsal.h"
#include "support/blocks.h"
#include "support/every_algorithm.h"

namespace braid::testing {
namespace {

using Copies = std::vector<std::vector<std::byte>>;

constexpr size_t kPiece = 320;  // no multiple or part of a segment

// One rank's operands, with inputs that come in pieces, each rank at its own pace. Until then their memory is wrong.
class FedRank {
 public:
  FedRank(const Collective& collective, Node rank, size_t count, bool in_place)
      : rank_(rank),
        blocks_(collective, rank, count, in_place),
        inputs_(blocks_.inputs()),
        outputs_(blocks_.outputs()),
        settled_(outputs_.size()) {
    for (const ConstBytes& input : inputs_) {
      longest_ = std::max(longest_, input.size());
      sources_.emplace_back(input.begin(), input.end());
      if (!input.empty()) std::memset(const_cast<std::byte*>(input.data()), 0x5a, input.size());
    }
    feeder_ = std::thread([this] { supply(); });
  }
  ~FedRank() {
    if (feeder_.joinable()) feeder_.join();
  }

  Operands operands() { return {DType::kUInt32, ReduceOp::kSum, inputs_, outputs_, 0, std::nullopt, &feed_}; }
  // After the end: the outputs are right, and bytes that were settled have not changed since.
  ::testing::AssertionResult right() {
    feeder_.join();
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (std::memcmp(settled_[k].data(), outputs_[k].data(), settled_[k].size()) != 0) {
        return ::testing::AssertionFailure() << "settled bytes of output " << k << " have changed";
      }
    }
    return blocks_.right();
  }
  bool settled_before_all_arrived() const { return early_; }

 private:
  void supply() {
    for (size_t begin = 0; begin < longest_; begin += kPiece) {
      for (size_t k = 0; k < inputs_.size(); ++k) {
        if (begin >= inputs_[k].size()) continue;
        const size_t bytes = std::min(kPiece, inputs_[k].size() - begin);
        std::memcpy(const_cast<std::byte*>(inputs_[k].data()) + begin, sources_[k].data() + begin, bytes);
      }
      feed_.arrive(begin + kPiece);
      if ((begin / kPiece + static_cast<size_t>(rank_)) % 3 == 0) std::this_thread::yield();
    }
    feed_.arrive(Feed::kAll);
  }
  void keep_settled() {
    if (feed_.arrived() != Feed::kAll) early_ = true;
    for (size_t k = 0; k < outputs_.size(); ++k) {
      const size_t end = std::min(feed_.settled(), outputs_[k].size());
      std::vector<std::byte>& kept = settled_[k];
      if (end > kept.size()) kept.insert(kept.end(), outputs_[k].begin() + kept.size(), outputs_[k].begin() + end);
    }
  }

  const Node rank_;
  Blocks blocks_;
  const std::vector<ConstBytes> inputs_;
  const std::vector<Bytes> outputs_;
  Copies sources_;
  Copies settled_;
  size_t longest_ = 0;
  std::atomic<bool> early_{false};
  Feed feed_{[this] { keep_settled(); }};
  std::thread feeder_;
};

template <class Rehearse>
bool expect_right(const Algorithm& algorithm, const Collective& collective, size_t count, bool in_place,
                  const Rehearse& run) {
  std::vector<std::unique_ptr<FedRank>> ranks;
  std::vector<Operands> operands;
  for (Node rank = 0; rank < collective.ranks; ++rank) {
    ranks.push_back(std::make_unique<FedRank>(collective, rank, count, in_place));
    operands.push_back(ranks.back()->operands());
  }
  const Status status = run(planned(algorithm, collective), operands);
  EXPECT_TRUE(status.ok()) << algorithm.name << ": " << status.message();
  bool early = false;
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank->right()) << algorithm.name;
    early |= rank->settled_before_all_arrived();
  }
  return early;
}

TEST(Feed, EveryAlgorithmRunsOnInputsThatCome) {
  RehearsalOptions options;
  options.execution.chunk_bytes = 256;
  for_every_algorithm({1, 2, 3, 5}, [&](const Algorithm& algorithm, const Collective& collective) {
    if (!algorithm.supports(collective)) return;
    for (const size_t count : {0, 1, 1009}) {
      for (const bool in_place : {false, true}) {
        options.loopback.read_peers = in_place;
        expect_right(algorithm, collective, count, in_place, [&](const auto& schedule, const auto& operands) {
          return rehearse(schedule, operands, options);
        });
      }
    }
  });
}

TEST(Feed, EveryAlgorithmRunsOnInputsThatComeOverBoards) {
  for_every_algorithm({1, 2, 3, 5}, [&](const Algorithm& algorithm, const Collective& collective) {
    if (!algorithm.supports(collective)) return;
    for (const size_t lend_from : {Layout::kNever, size_t{65'536}}) {
      for (const bool in_place : {false, true}) {
        expect_right(algorithm, collective, 20'011, in_place, [&](const auto& schedule, const auto& operands) {
          return rehearse_on_boards(schedule, operands, 64 * 1024, milliseconds(60'000), lend_from);
        });
      }
    }
  });
}

// A pair, of which one rank gets its first bytes only.
class HalfFed : public ::testing::Test {
 protected:
  HalfFed() {
    for (Node rank = 0; rank < 2; ++rank) {
      mailboxes_.push_back(std::make_unique<Mailbox>(rank, 2, bells_[rank]));
      mailboxes_.back()->attach(1 - rank, hub_.channel(rank, 1 - rank, *mailboxes_.back(), bells_[rank]));
    }
    for (Node rank = 0; rank < 2; ++rank) {
      executions_[rank].emplace(
          schedule_, rank,
          Operands{
              DType::kUInt8, ReduceOp::kSum, {memory_[rank]}, {memory_[rank]}, 0, std::nullopt, &feeds_[rank]},
          *mailboxes_[static_cast<size_t>(rank)], 1, pool_, ExecutionOptions{256, 4, {}});
    }
  }
  ~HalfFed() override {
    for (const auto& mailbox : mailboxes_) mailbox->close();
  }
  bool advance() {
    bool done = true;
    for (int turn = 0; turn < 100; ++turn) {
      done = true;
      for (Node rank = 0; rank < 2; ++rank) {
        mailboxes_[static_cast<size_t>(rank)]->poll();
        done = executions_[rank]->advance() && done;
      }
    }
    return done;
  }

  std::vector<std::byte> memory_[2] = {std::vector<std::byte>(4096, std::byte{1}),
                                       std::vector<std::byte>(4096, std::byte{2})};
  std::shared_ptr<const VerifiedSchedule> schedule_ =
      planned(*find_algorithm(CollectiveKind::kAllReduce, "direct"), {CollectiveKind::kAllReduce, 2, 0});
  LoopbackHub hub_{2, {}};
  DoorbellWord bells_[2];
  Pool pool_{0};
  Feed feeds_[2];
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
  std::optional<Execution> executions_[2];
};

TEST_F(HalfFed, GoesAsFarAsItsInputs) {
  feeds_[0].arrive(Feed::kAll);
  EXPECT_FALSE(advance());
  EXPECT_EQ(feeds_[0].settled(), 0u);
  EXPECT_EQ(executions_[1]->waiting_for(3), "its own inputs");
  feeds_[1].arrive(2048);
  EXPECT_FALSE(advance());
  for (const Feed& feed : feeds_) {
    EXPECT_GT(feed.settled(), 0u);
    EXPECT_LE(feed.settled(), 2048u);
  }
  EXPECT_EQ(memory_[0][0], std::byte{3});
  EXPECT_EQ(memory_[1][4095], std::byte{2});
  feeds_[1].arrive(Feed::kAll);
  EXPECT_TRUE(advance());
  EXPECT_EQ(feeds_[1].settled(), Feed::kAll);
  EXPECT_EQ(memory_[1][4095], std::byte{3});
}

}  // namespace
}  // namespace braid::testing

// SPDX-License-Identifier: Apache-2.0
// Votes over queues of one process, moved on step by step, so that the order of things is certain.
#include "aggregator/vote.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "transport/loopback/loopback.h"

namespace braid::testing {
namespace {

class Assembly {
 public:
  explicit Assembly(int ranks) : ranks_(ranks), hub_(ranks, {}), bells_(static_cast<size_t>(ranks)) {
    for (Node rank = 0; rank < ranks; ++rank) {
      DoorbellWord& bell = bells_[static_cast<size_t>(rank)];
      boxes_.push_back(std::make_unique<Mailbox>(rank, ranks, bell));
      for (Node peer = 0; peer < ranks; ++peer) {
        if (peer != rank) boxes_.back()->attach(peer, hub_.channel(rank, peer, *boxes_.back(), bell));
      }
    }
  }

  std::unique_ptr<Vote> vote(Node rank, uint64_t sequence, bool yes) {
    return std::make_unique<Vote>(box(rank), rank, ranks_, sequence, yes);
  }
  Mailbox& box(Node rank) { return *boxes_[static_cast<size_t>(rank)]; }
  void kill(Node rank) { hub_.kill(rank); }
  // Moves on what can move; whether all of them are over. Null votes were never cast.
  bool advance(const std::vector<std::unique_ptr<Vote>>& votes) {
    bool over = true;
    for (int round = 0; round < 10; ++round) {
      over = true;
      for (Node rank = 0; rank < ranks_; ++rank) {
        if (!votes[static_cast<size_t>(rank)]) continue;
        box(rank).poll();
        over &= votes[static_cast<size_t>(rank)]->advance();
      }
    }
    return over;
  }

 private:
  const int ranks_;
  LoopbackHub hub_;
  std::deque<DoorbellWord> bells_;
  std::vector<std::unique_ptr<Mailbox>> boxes_;
};

using Votes = std::vector<std::unique_ptr<Vote>>;

void expect_outcome(const Votes& votes, bool all_said_yes) {
  for (size_t rank = 0; rank < votes.size(); ++rank) {
    EXPECT_TRUE(votes[rank]->status().ok()) << "rank " << rank << ": " << votes[rank]->status().message();
    EXPECT_EQ(votes[rank]->all_said_yes(), all_said_yes) << "rank " << rank;
  }
}

TEST(Vote, OneNoIsHeardByAll) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (Node against = -1; against < ranks; ++against) {  // -1: nobody
      Assembly assembly(ranks);
      Votes votes;
      for (Node rank = 0; rank < ranks; ++rank) votes.push_back(assembly.vote(rank, 7, rank != against));
      ASSERT_TRUE(assembly.advance(votes)) << ranks << " ranks";
      expect_outcome(votes, against < 0);
    }
  }
}

TEST(Vote, NobodyKnowsTheOutcomeBeforeTheLastHasVoted) {
  for (Node late = 0; late < 4; ++late) {
    for (const bool yes : {true, false}) {
      Assembly assembly(4);
      Votes votes(4);
      for (Node rank = 0; rank < 4; ++rank) {
        if (rank != late) votes[static_cast<size_t>(rank)] = assembly.vote(rank, 1, true);
      }
      assembly.advance(votes);
      for (const auto& vote : votes) EXPECT_TRUE(!vote || !vote->advance()) << "rank " << late << " was not asked";
      votes[static_cast<size_t>(late)] = assembly.vote(late, 1, yes);
      ASSERT_TRUE(assembly.advance(votes));
      expect_outcome(votes, yes);
    }
  }
}

// Who has heard the outcome may vote again before others have heard it.
TEST(Vote, VotesInARowAreApart) {
  Assembly assembly(3);
  for (uint64_t sequence = 1; sequence < 8; ++sequence) {
    Votes votes;
    for (Node rank = 0; rank < 3; ++rank) votes.push_back(assembly.vote(rank, sequence, sequence % 3 != 0));
    while (!votes[1]->advance()) {  // rank 2 does not look
      for (const Node rank : {0, 1}) assembly.box(rank).poll();
      votes[0]->advance();
    }
    const auto next = assembly.vote(1, sequence + 100, true);
    ASSERT_TRUE(assembly.advance(votes));
    expect_outcome(votes, sequence % 3 != 0);
    EXPECT_FALSE(next->advance());
    Votes others(3);
    for (const Node rank : {0, 2}) others[static_cast<size_t>(rank)] = assembly.vote(rank, sequence + 100, true);
    for (int round = 0; round < 10; ++round) {
      assembly.advance(others);
      assembly.box(1).poll();
      next->advance();
    }
    EXPECT_TRUE(next->advance() && next->all_said_yes());
    EXPECT_TRUE(others[0]->all_said_yes() && others[2]->all_said_yes());
  }
}

TEST(Vote, ARankThatDiesBeforeItVotesIsNamedToAll) {
  for (Node dead = 0; dead < 4; ++dead) {
    Assembly assembly(4);
    Votes votes(4);
    for (Node rank = 0; rank < 4; ++rank) {
      if (rank != dead) votes[static_cast<size_t>(rank)] = assembly.vote(rank, 1, true);
    }
    assembly.advance(votes);
    assembly.kill(dead);
    ASSERT_TRUE(assembly.advance(votes)) << "somebody waits for rank " << dead << " for ever";
    for (const auto& vote : votes) {
      if (!vote) continue;
      EXPECT_EQ(vote->status().code(), Code::kPeerLost) << vote->status().message();
      EXPECT_EQ(vote->status().rank(), dead) << vote->status().message();
    }
  }
}

TEST(Vote, AFailureEndsIt) {
  for (Node failing = 0; failing < 3; ++failing) {
    Assembly assembly(3);
    Votes votes(3);
    for (const Node rank : {0, 1}) votes[static_cast<size_t>(rank)] = assembly.vote(rank, 1, true);
    assembly.advance(votes);
    assembly.box(failing).fail({Code::kAborted, "enough", failing});
    ASSERT_TRUE(assembly.advance(votes));
    for (const Node rank : {0, 1}) {
      EXPECT_EQ(votes[static_cast<size_t>(rank)]->status().code(), Code::kAborted);
      EXPECT_EQ(votes[static_cast<size_t>(rank)]->status().rank(), failing);
    }
    const auto later = assembly.vote(2, 1, true);  // it has failed by now, and the vote at once
    assembly.box(2).poll();
    ASSERT_TRUE(later->advance());
    EXPECT_EQ(later->status().code(), Code::kAborted);
  }
}

}  // namespace
}  // namespace braid::testing

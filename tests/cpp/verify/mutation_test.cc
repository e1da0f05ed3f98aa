// SPDX-License-Identifier: Apache-2.0
// Breaks right schedules in every small way. The verifier must refuse, or the mutant must still compute the right
// result: an interpreter that knows nothing of the verifier decides.
#include <gtest/gtest.h>

#include "planner/planners.h"
#include "schedule/text.h"
#include "support/reference.h"
#include "verify/verify.h"

namespace braid {
namespace {

struct Tally {
  int mutants = 0;
  int accepted = 0;
  double refused() const { return 1.0 - static_cast<double>(accepted) / mutants; }
};

struct Subject {
  CollectiveKind kind;
  const char* algorithm;
  int ranks;
  Node root;
  int aggregators = 0;
};

const std::vector<Subject>& subjects() {
  using enum CollectiveKind;
  static const std::vector<Subject> all = {
      {kAllReduce, "ring", 3, 0},
      {kAllReduce, "ring", 4, 0},
      {kAllReduce, "direct", 4, 0},
      {kAllReduce, "doubling", 5, 0},
      {kAllReduce, "halving_doubling", 5, 0},
      {kAllReduce, "halving_doubling", 4, 0},
      {kAllReduce, "gather_all", 4, 0},
      {kReduceScatter, "ring", 4, 0},
      {kReduceScatter, "direct", 4, 0},
      {kAllGather, "ring", 4, 0},
      {kAllGather, "direct", 4, 0},
      {kBroadcast, "binomial", 6, 1},
      {kReduce, "binomial", 6, 1},
      {kReduce, "direct", 4, 2},
      {kAllToAll, "pairwise", 4, 0},
      {kGather, "direct", 4, 1},
      {kScatter, "direct", 4, 1},
      {kAllReduce, "direct", 2, 0, 1},
      {kAllReduce, "direct", 3, 0, 2},
  };
  return all;
}

Schedule draw(const Subject& subject) {
  return find_algorithm(subject.kind, subject.algorithm)
      ->plan({subject.kind, subject.ranks, subject.root}, {{}, {}, subject.aggregators})
      .value();
}

void judge(const Schedule& original, const Schedule& mutant, Tally* tally) {
  if (mutant == original) return;
  ++tally->mutants;
  if (!verify(mutant).ok()) return;
  ++tally->accepted;
  EXPECT_EQ(testing::fault_of(mutant), "") << to_text(mutant);
}

// Calls mutate(copy of the schedule, node, round, step) for every step, and judges what comes out.
template <class Mutate>
Tally for_every_step(const Mutate& mutate) {
  Tally tally;
  for (const Subject& subject : subjects()) {
    Schedule original = draw(subject);
    EXPECT_TRUE(verify(original).ok());
    for (Node node = 0; node < original.nodes(); ++node) {
      for (size_t round = 0; round < original.programs[node].size(); ++round) {
        for (size_t step = 0; step < original.programs[node][round].size(); ++step) {
          mutate(original, node, round, step, &tally);
        }
      }
    }
  }
  ::testing::Test::RecordProperty("mutants", tally.mutants);
  ::testing::Test::RecordProperty("accepted", tally.accepted);
  return tally;
}

TEST(Mutation, DroppingAStep) {
  Tally tally = for_every_step([](const Schedule& original, Node node, size_t round, size_t step, Tally* sum) {
    Schedule mutant = original;
    Round& steps = mutant.programs[node][round];
    steps.erase(steps.begin() + static_cast<ptrdiff_t>(step));
    judge(original, mutant, sum);
  });
  EXPECT_GT(tally.mutants, 300);
  EXPECT_EQ(tally.accepted, 0);
}

TEST(Mutation, DoublingAStep) {
  Tally tally = for_every_step([](const Schedule& original, Node node, size_t round, size_t step, Tally* sum) {
    Schedule mutant = original;
    Round& steps = mutant.programs[node][round];
    steps.push_back(steps[step]);
    judge(original, mutant, sum);
  });
  EXPECT_GT(tally.refused(), 0.9);  // a copy may well run twice
}

TEST(Mutation, SwappingTwoStepsAcrossRounds) {
  Tally tally = for_every_step([](const Schedule& original, Node node, size_t round, size_t step, Tally* sum) {
    for (size_t later = round + 1; later < original.programs[node].size(); ++later) {
      for (size_t other = 0; other < original.programs[node][later].size(); ++other) {
        Schedule mutant = original;
        std::swap(mutant.programs[node][round][step], mutant.programs[node][later][other]);
        judge(original, mutant, sum);
      }
    }
  });
  EXPECT_GT(tally.mutants, 300);
  EXPECT_GT(tally.refused(), 0.9);
}

TEST(Mutation, MovingAStepToAnotherRound) {
  Tally tally = for_every_step([](const Schedule& original, Node node, size_t round, size_t step, Tally* sum) {
    for (size_t other = 0; other < original.programs[node].size(); ++other) {
      if (other == round) continue;
      Schedule mutant = original;
      Round& steps = mutant.programs[node][round];
      mutant.programs[node][other].push_back(steps[step]);
      steps.erase(steps.begin() + static_cast<ptrdiff_t>(step));
      judge(original, mutant, sum);
    }
  });
  EXPECT_GT(tally.refused(), 0.7);  // inputs may leave earlier or later, for one
}

TEST(Mutation, RetargetingAMessage) {
  Tally tally = for_every_step([](const Schedule& original, Node node, size_t round, size_t step, Tally* sum) {
    for (Node peer = -1; peer <= original.nodes(); ++peer) {
      Schedule mutant = original;
      Step& changed = mutant.programs[node][round][step];
      if (changed.op == Op::kSend || changed.op == Op::kRecv) {
        changed.peer = peer;
        judge(original, mutant, sum);
      }
      for (size_t source = 0; changed.op == Op::kReduce && source < changed.sources.size(); ++source) {
        mutant = original;
        mutant.programs[node][round][step].sources[source] = {peer, {}};
        judge(original, mutant, sum);
      }
    }
  });
  EXPECT_GT(tally.mutants, 1000);
  EXPECT_EQ(tally.accepted, 0);
}

TEST(Mutation, ChangingAChunkOrAMemory) {
  Tally tally = for_every_step([](const Schedule& original, Node node, size_t round, size_t step, Tally* sum) {
    size_t refs = 1 + original.programs[node][round][step].sources.size();
    for (size_t place = 0; place < refs; ++place) {
      for (Buffer buffer : {Buffer::kInput, Buffer::kOutput, Buffer::kScratch}) {
        for (int first = 0; first < original.chunks; ++first) {
          for (int count = 1; count <= 2; ++count) {
            Schedule mutant = original;
            Step& changed = mutant.programs[node][round][step];
            if (place > 0 && changed.sources[place - 1].is_remote()) continue;
            (place == 0 ? changed.target : changed.sources[place - 1].ref) = {buffer, first, count};
            judge(original, mutant, sum);
          }
        }
      }
    }
  });
  EXPECT_GT(tally.mutants, 5000);
  EXPECT_GT(tally.refused(), 0.95);
}

TEST(Mutation, DuplicatingAReduceSource) {
  Tally tally = for_every_step([](const Schedule& original, Node node, size_t round, size_t step, Tally* sum) {
    for (size_t source = 0; source < original.programs[node][round][step].sources.size(); ++source) {
      Schedule mutant = original;
      auto& sources = mutant.programs[node][round][step].sources;
      sources.push_back(sources[source]);
      judge(original, mutant, sum);
    }
  });
  EXPECT_GT(tally.mutants, 100);
  EXPECT_EQ(tally.accepted, 0);
}

TEST(Mutation, ReorderingReduceSources) {
  Tally tally = for_every_step([](const Schedule& original, Node node, size_t round, size_t step, Tally* sum) {
    for (size_t source = 1; source < original.programs[node][round][step].sources.size(); ++source) {
      Schedule mutant = original;
      auto& sources = mutant.programs[node][round][step].sources;
      std::swap(sources[source - 1], sources[source]);
      judge(original, mutant, sum);
    }
  });
  EXPECT_GT(tally.accepted, 50);             // where one owner computes for all, any order will do
  EXPECT_GT(tally.mutants, tally.accepted);  // where all compute for themselves, it will not
}

TEST(Mutation, DroppingAReduceSource) {
  Tally tally = for_every_step([](const Schedule& original, Node node, size_t round, size_t step, Tally* sum) {
    for (size_t source = 0; source < original.programs[node][round][step].sources.size(); ++source) {
      Schedule mutant = original;
      auto& sources = mutant.programs[node][round][step].sources;
      sources.erase(sources.begin() + static_cast<ptrdiff_t>(source));
      judge(original, mutant, sum);
    }
  });
  EXPECT_EQ(tally.accepted, 0);
}

}  // namespace
}  // namespace braid

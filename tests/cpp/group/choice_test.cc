// SPDX-License-Identifier: Apache-2.0
// The choice of algorithm by itself: no wire, no other rank.
#include "group/choice.h"

#include <gtest/gtest.h>

#include "communicator/ranks.h"

namespace braid::testing {
namespace {

// Rank 0's side of a group whose ranks are on these hosts.
struct Side {
  explicit Side(const Options& options, std::vector<int> hosts = {0, 0, 0, 0})
      : member{std::static_pointer_cast<EngineImpl>(Engine::create(options).value()),
               0,
               static_cast<int>(hosts.size()),
               static_cast<int>(hosts.size()),
               "test",
               options},
        mailbox(0, member.nodes, member.engine->bell()) {
    wires.hosts = std::move(hosts);
  }
  ~Side() { mailbox.close(); }

  Status learn(bool again = false) { return choice.learn(again, Clock::now() + milliseconds(20'000)); }

  const Member member;
  Wires wires;
  Mailbox mailbox;
  Statistics statistics;
  AlgorithmChoice choice{member, wires, mailbox, statistics};
};

const Route& route_of(AlgorithmChoice& choice, std::vector<float>& values) {
  const auto route = choice.route_for(all_reduce(values));
  EXPECT_TRUE(route.ok()) << route.status().message();
  return *route.value();
}

TEST(AlgorithmChoice, KeepsRoutes) {
  Side side({});
  ASSERT_TRUE(side.learn().ok());
  std::vector<float> small(16), large(1 << 20);
  const Route& first = route_of(side.choice, small);
  EXPECT_EQ(&route_of(side.choice, small), &first);
  const Route& other = route_of(side.choice, large);
  EXPECT_EQ(&route_of(side.choice, small), &first);  // also after another size
  EXPECT_EQ(&route_of(side.choice, large), &other);
  EXPECT_EQ(first.epoch, 0);
  EXPECT_GT(first.chunk_bytes, 0u);
  EXPECT_FALSE(first.board.possible);  // there are no boards
  EXPECT_EQ(first.counters->sums.collective, "all_reduce");
  EXPECT_EQ(first.counters->sums.algorithm, first.schedule->schedule().algorithm);
}

TEST(AlgorithmChoice, PlansAnewAndKeepsOldRoutesReadable) {
  Side side({});
  ASSERT_TRUE(side.learn().ok());
  std::vector<float> values(16);
  const Route& before = route_of(side.choice, values);
  const std::string algorithm = before.schedule->schedule().algorithm;
  ASSERT_TRUE(side.learn(true).ok());
  EXPECT_EQ(side.choice.epoch(), 1);
  const Route& after = route_of(side.choice, values);
  EXPECT_NE(&after, &before);
  EXPECT_EQ(after.epoch, 1);
  EXPECT_EQ(before.epoch, 0);
  EXPECT_EQ(before.schedule->schedule().algorithm, algorithm);
}

TEST(AlgorithmChoice, OfAForcedAlgorithm) {
  Options options;
  options.algorithm = "ring";
  Side side(options);
  ASSERT_TRUE(side.learn().ok());
  std::vector<float> values(16);
  EXPECT_EQ(route_of(side.choice, values).schedule->schedule().algorithm, "ring");
  options.algorithm = "rinng";
  Side wrong(options);
  EXPECT_EQ(wrong.learn().code(), Code::kInvalidArgument);
}

TEST(AlgorithmChoice, PredictsTheTimeOfTheChosenAlgorithm) {
  Side side({});
  ASSERT_TRUE(side.learn().ok());
  const auto small = side.choice.predicted_s(DType::kFloat32, ReduceOp::kSum, 64);
  const auto large = side.choice.predicted_s(DType::kFloat32, ReduceOp::kSum, 64 << 20);
  ASSERT_TRUE(small && large);
  EXPECT_GT(*small, 0);
  EXPECT_GT(*large, *small);
  EXPECT_EQ(side.choice.predicted_s(DType::kFloat32, ReduceOp::kSum, -1), std::nullopt);
}

TEST(AlgorithmChoice, TakesStatedLinksWithoutAMessage) {
  Options options;
  options.stated.emplace();
  options.stated->between = {1e-4, 1e-8};
  Side side(options, {0, 1});
  side.wires.rates = {{1e-8, 1e-8}, {4e-8, 2e-8}};
  ASSERT_TRUE(side.learn().ok());
  EXPECT_TRUE(side.choice.is_on_several_hosts());
  EXPECT_EQ(side.choice.tuner()->topology().nic(1).up_s_per_byte, 4e-8);
  EXPECT_EQ(side.choice.tuner()->topology().between_hosts().alpha_s, 1e-4);
}

TEST(AlgorithmChoice, SaysWhyStatedLinksCannotBeHad) {
  Options options;
  options.links = "links.toml";
  Side unread(options);
  EXPECT_EQ(unread.learn().message(), "BRAID_LINKS=links.toml: nobody has read that file");
  options.stated.emplace();
  options.stated->problem = "links.toml has no host";
  Side wrong(options);
  EXPECT_EQ(wrong.learn().message(), "links.toml has no host");
}

TEST(AlgorithmChoice, AssumesLinksIfToldTo) {
  Options options;
  options.links = "assume";
  Side side(options, {0, 1});
  ASSERT_TRUE(side.learn().ok());
  EXPECT_TRUE(side.choice.is_on_several_hosts());
  Side alone(options);
  ASSERT_TRUE(alone.learn().ok());
  EXPECT_FALSE(alone.choice.is_on_several_hosts());
}

}  // namespace
}  // namespace braid::testing

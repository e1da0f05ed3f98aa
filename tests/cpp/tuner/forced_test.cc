// SPDX-License-Identifier: Apache-2.0
#include "tuner/forced.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

using enum CollectiveKind;

Forced parsed(const std::string& text) {
  Result<Forced> forced = Forced::parse(text);
  EXPECT_TRUE(forced.ok()) << forced.status().message();
  return forced.ok() ? forced.value() : Forced();
}

TEST(Forced, NothingIsForcedByDefault) {
  for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
    EXPECT_EQ(parsed("").algorithm_for(static_cast<CollectiveKind>(kind)), "");
  }
}

TEST(Forced, ABareNameIsForAllThatHaveIt) {
  Forced forced = parsed("ring");
  EXPECT_EQ(forced.algorithm_for(kAllReduce), "ring");
  EXPECT_EQ(forced.algorithm_for(kAllGather), "ring");
  EXPECT_EQ(forced.algorithm_for(kBroadcast), "");
}

TEST(Forced, NamedCollectivesAndLaterEntriesWin) {
  Forced forced = parsed(" direct, all_reduce = ring ,broadcast=binomial");
  EXPECT_EQ(forced.algorithm_for(kAllReduce), "ring");
  EXPECT_EQ(forced.algorithm_for(kBroadcast), "binomial");
  EXPECT_EQ(forced.algorithm_for(kReduce), "direct");
}

void expect_refused(const std::string& text, const std::vector<std::string>& words) {
  Status status = Forced::parse(text).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << text << ": " << status.message();
  }
}

TEST(Forced, UnknownNamesListTheKnownOnes) {
  expect_refused("rings", {"\"rings\"", "all_reduce: ring, doubling", "gather: direct"});
  expect_refused("broadcast=ring", {"broadcast has no algorithm \"ring\"", "binomial, direct"});
  expect_refused("allreduce=ring", {"no collective \"allreduce\"", "all_reduce, reduce_scatter"});
  expect_refused("=", {"no collective"});
}

}  // namespace
}  // namespace braid

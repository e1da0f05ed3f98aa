// SPDX-License-Identifier: Apache-2.0
// What a group says that it would choose is what it then does.
#include <cstdint>
#include <map>
#include <string>

#include "communicator/checks.h"
#include "communicator/ranks.h"
#include "links/tuning.h"

namespace braid::testing {
namespace {

std::map<std::string, uint64_t> calls_by_algorithm(const Communicator& group, CollectiveKind kind) {
  std::map<std::string, uint64_t> calls;
  for (const OperationStats& row : group.stats()) {
    if (row.collective == name_of(kind)) calls[row.algorithm] = row.calls;
  }
  return calls;
}

void expect_truth(Communicator& group, CollectiveKind kind, size_t count) {
  const Collective collective{kind, group.ranks(), has_root(kind) ? group.ranks() - 1 : 0};
  Blocks blocks(collective, group.rank(), count, false);
  const Operation operation = kind == CollectiveKind::kBarrier ? barrier() : operation_on(blocks, collective);
  // Whatever the size is where ranks do not agree about it.
  const int64_t bytes = is_size_agreed(kind) ? agreed_bytes(operation) : static_cast<int64_t>(count);
  const auto told = group.explain(kind, operation.dtype, operation.op, operation.root, bytes);
  ASSERT_TRUE(told.ok()) << told.status().message();
  const Explanation& explanation = told.value();
  EXPECT_EQ(explanation.collective, name_of(kind));
  EXPECT_EQ(explanation.reason.find(std::string(name_of(kind)) + " of "), 0u) << explanation.reason;
  EXPECT_GT(explanation.predicted_s, 0);
  auto expected = calls_by_algorithm(group, kind);
  ++expected[explanation.algorithm];
  const Status status = run(group, operation);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(calls_by_algorithm(group, kind), expected) << explanation.reason;
}

TEST(Explain, NamesTheAlgorithmThatThenCarriesTheOperation) {
  on_all_ranks(3, options_for(wires()[0]), [](Communicator& group) {
    for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
      for (const size_t count : {0, 1, 1009, 65'536, 65'537, 300'000}) {
        expect_truth(group, static_cast<CollectiveKind>(kind), count);
      }
    }
  });
}

TEST(Explain, PredictsTheExactSizeAndChoosesForItsClass) {
  on_all_ranks(4, options_for(wires()[0]), [](Communicator& group) {
    const auto of = [&](CollectiveKind kind, int64_t bytes) {
      return group.explain(kind, DType::kFloat32, ReduceOp::kSum, 0, bytes).value();
    };
    const Explanation smaller = of(CollectiveKind::kAllReduce, (1 << 20) + 4);
    const Explanation larger = of(CollectiveKind::kAllReduce, 1 << 21);
    EXPECT_EQ(smaller.reason, larger.reason);
    EXPECT_EQ(smaller.algorithm, larger.algorithm);
    EXPECT_LT(smaller.predicted_s, larger.predicted_s);
    ASSERT_EQ(larger.runners_up.size(), 5u);
    for (const Candidate& candidate : larger.runners_up) EXPECT_GE(candidate.predicted_s, larger.predicted_s);
    // Chosen without looking at the size, but priced with it.
    EXPECT_EQ(of(CollectiveKind::kAllToAll, 0).algorithm, of(CollectiveKind::kAllToAll, 1 << 26).algorithm);
    EXPECT_LT(of(CollectiveKind::kAllToAll, 0).predicted_s, of(CollectiveKind::kAllToAll, 1 << 26).predicted_s);
    EXPECT_EQ(of(CollectiveKind::kBarrier, 0).predicted_s, of(CollectiveKind::kBarrier, 1 << 26).predicted_s);
  });
}

// The topology's text is all that a choice depends on, besides the settings.
TEST(Explain, IsTheSameWithoutTheGroup) {
  const auto compare = [](Communicator& group, const Options& options) {
    auto tuner = tuner_for(topology_from_text(group.topology_text()).value(), options);
    ASSERT_TRUE(tuner.ok()) << tuner.status().message();
    for (const char* collective : {"all_reduce", "all_gather", "broadcast", "barrier", "scatter"}) {
      for (const int64_t bytes : {int64_t{0}, int64_t{1000}, int64_t{1} << 20, int64_t{50'000'000}}) {
        const auto there = explain(group, collective, "float32", "sum", 1, bytes);
        const auto here = explain(*tuner.value(), collective, "float32", "sum", 1, bytes);
        ASSERT_TRUE(there.ok() && here.ok()) << there.status().message() << here.status().message();
        EXPECT_EQ(there.value().reason, here.value().reason);
        EXPECT_EQ(there.value().predicted_s, here.value().predicted_s) << there.value().reason;
        EXPECT_EQ(there.value().shares, here.value().shares);
        EXPECT_EQ(there.value().chunk_bytes, here.value().chunk_bytes);
        EXPECT_EQ(there.value().segments, here.value().segments);
      }
    }
  };
  for (const Wire& wire : wires()) {
    for (const int ranks : {2, 9}) {  // perhaps with several ranks per core
      const Options options = options_for(wire);
      on_all_ranks(ranks, options, [&](Communicator& group) { compare(group, options); });
    }
  }
  Options options = options_for({"all", "shm,tcp", true});
  options.links = "net.toml";
  at_all_places(3, options, [&](const Place& place) {
    Place here = place;
    here.options.host = place.rank < 2 ? "a" : "b";
    const double s_per_byte = place.rank < 2 ? 8e-9 : 4e-8;
    here.options.stated = StatedLinks{"", "d", {5e-5, 8e-9}, {s_per_byte, s_per_byte}};
    auto group = here.form("test");
    ASSERT_TRUE(group.ok()) << group.status().message();
    compare(*group.value(), options);
    group.value()->shutdown();
  });
}

TEST(Explain, ShowsWhatIsForcedAndWhatADtypeRulesOut) {
  Options options = options_for(wires()[0]);
  options.algorithm = "all_reduce=ring";
  on_all_ranks(3, options, [](Communicator& group) {
    const auto told = explain(group, "all_reduce", "float16", "avg", 0, 8);
    ASSERT_TRUE(told.ok()) << told.status().message();
    EXPECT_EQ(told.value().algorithm, "ring");
    EXPECT_TRUE(told.value().runners_up.empty());
    EXPECT_NE(told.value().reason.find("forced by algorithm=all_reduce=ring"), std::string::npos);
    expect_truth(group, CollectiveKind::kAllReduce, 1009);
    const auto narrow = explain(group, "reduce", "float16", "avg", 1, 8);
    ASSERT_TRUE(narrow.ok()) << narrow.status().message();
    EXPECT_NE(narrow.value().reason.find("is rounded once"), std::string::npos) << narrow.value().reason;
  });
}

TEST(Explain, AsksNobodyAndWorksInAFailedGroup) {
  on_all_ranks(2, options_for(wires()[0]), [](Communicator& group) {
    group.abort("no more");
    const uint64_t before = group.sequence();
    EXPECT_TRUE(explain(group, "all_reduce", "float32", "sum", 0, 1000).ok());
    EXPECT_EQ(group.sequence(), before);
  });
}

TEST(Explain, RefusesWrongArguments) {
  on_all_ranks(1, options_for(wires()[0]), [](Communicator& group) {
    const auto refused = [&](const std::string& collective, const std::string& dtype, const std::string& op,
                             Node root, int64_t bytes, const std::string& text) {
      const Status status = explain(group, collective, dtype, op, root, bytes).status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
      EXPECT_TRUE(says(status, text)) << status.message();
    };
    refused("all_redcue", "float32", "sum", 0, 8, "\"all_redcue\"; there are all_reduce, reduce_scatter, ");
    refused("all_reduce", "float31", "sum", 0, 8, "\"float31\"; there are float64, float32, ");
    refused("all_reduce", "float32", "sun", 0, 8, "\"sun\"; there are sum, avg, ");
    refused("all_reduce", "float32", "band", 0, 8, "band");
    refused("all_to_all", "float32", "sum", 0, -1, "-1 bytes");
    refused("barrier", "float32", "sum", 0, -1, "-1 bytes");
    refused("broadcast", "float32", "sum", 1, 8, "root 1");
    EXPECT_TRUE(explain(group, "all_gather", "float32", "band", 7, 8).ok());  // has neither op nor root
    EXPECT_TRUE(explain(group, "all_reduce", "float32", "sum", 0, INT64_MAX).ok());
  });
}

TEST(Explain, CountsTheCopiesOfTheRanksThatCopyMost) {
  const DeviceCopies device{{{1, 0.5}, {2, 0.25}}};  // seconds, so that nothing else counts
  struct Row {
    CollectiveKind kind;
    double down, up;  // of 4000 bytes with 4 ranks
  };
  for (const Row& row : {Row{CollectiveKind::kAllReduce, 4000, 4000}, Row{CollectiveKind::kReduce, 4000, 4000},
                         Row{CollectiveKind::kBroadcast, 4000, 4000}, Row{CollectiveKind::kAllGather, 1000, 4000},
                         Row{CollectiveKind::kReduceScatter, 4000, 1000}, Row{CollectiveKind::kGather, 1000, 4000},
                         Row{CollectiveKind::kScatter, 4000, 1000}, Row{CollectiveKind::kAllToAll, 4000, 4000}}) {
    Explanation told;
    told.collective = name_of(row.kind);
    told.predicted_s = 3;
    told.runners_up = {{"ring", 5}};
    told = with_copies(std::move(told), device, 4, 3, 4000);
    const double copies_s = 1 + 0.5 * row.down + 2 + 0.25 * row.up;
    EXPECT_DOUBLE_EQ(told.copies_s, copies_s) << told.collective;
    EXPECT_DOUBLE_EQ(told.predicted_s, 3 + copies_s);
    EXPECT_DOUBLE_EQ(told.runners_up[0].predicted_s, 5 + copies_s);
    EXPECT_NE(told.reason.find("of copies to and from the device"), std::string::npos);
  }
  Explanation in_pieces;
  in_pieces.collective = "all_reduce";
  in_pieces.predicted_s = 30;
  in_pieces.runners_up = {{"ring", 5000}};
  in_pieces = with_copies(std::move(in_pieces), {device.rates, 1000}, 4, 0, 4000);
  EXPECT_DOUBLE_EQ(in_pieces.copies_s, 2001 + 1002);
  EXPECT_DOUBLE_EQ(in_pieces.predicted_s, 2001 + (1002 + 30) / 4.0);  // the copy down is the longest leg
  EXPECT_DOUBLE_EQ(in_pieces.runners_up[0].predicted_s, 5000 + (2001 + 1002) / 4.0);
  Explanation barrier;
  barrier.collective = name_of(CollectiveKind::kBarrier);
  EXPECT_EQ(with_copies(barrier, device, 4, 0, 0).copies_s, 0);
}

}  // namespace
}  // namespace braid::testing

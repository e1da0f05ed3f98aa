// SPDX-License-Identifier: Apache-2.0
// Choices for messages in fewer bytes.
#include <gtest/gtest.h>

#include "support/choices.h"
#include "verify/owners.h"

namespace braid::testing {
namespace {

constexpr Collective kFour{CollectiveKind::kAllReduce, 4, 0};
constexpr Collective kEight{CollectiveKind::kAllReduce, 8, 0};

Codec codec(const char* text) { return codec_from_text(text).value(); }

Result<Choice> choice_with(const char* text, const Collective& collective, const Topology& topology,
                           const TunerOptions& options = {}) {
  ScheduleCache cache;
  return choose(collective, DType::kFloat32, ReduceOp::kSum, kHuge, topology, options, cache, codec(text));
}

TEST(CodecChoice, IsAmongSchedulesWithOwners) {
  const Topology topology({0, 0, 1, 1, 2, 2}, {1e-6, 1e-10}, {1e-4, 8e-9});
  const Choice choice = choice_with("int8", {CollectiveKind::kAllReduce, 6, 0}, topology).value();
  EXPECT_EQ(considered(choice), (std::set<std::string>{"direct", "hierarchical_direct"}));
  EXPECT_TRUE(has_owners(*choice.schedule, topology.numbered_hosts()));
  EXPECT_NE(choice.reason.find("these have not: ring"), std::string::npos) << choice.reason;
}

TEST(CodecChoice, TakesThePartOfTheTimeThatItsMessagesHave) {
  TunerOptions options;
  options.chunk_bytes = 0;
  options.algorithm = "direct";
  const Topology slow = uniform(4, 1e-4, 4e-8);  // 200 Mbit/s
  const double exact_s = chosen(kFour, kHuge, slow, DType::kFloat32, ReduceOp::kSum, options).predicted_s;
  for (const char* text : {"fp16", "int8", "int4", "sign"}) {
    const double part = choice_with(text, kFour, slow, options).value().predicted_s / exact_s;
    EXPECT_GT(part, ratio(codec(text)) * 0.95) << text;
    EXPECT_LT(part, ratio(codec(text)) * 1.3 + 0.02) << text;
  }
}

TEST(CodecChoice, PricesFloatsOf16BitsByTheirOwnBytes) {
  TunerOptions options;
  options.chunk_bytes = 0;
  options.algorithm = "direct";
  Topology slow = uniform(4, 1e-4, 4e-8);
  slow.set_work("int8", 0);
  const auto seconds = [&](DType dtype, std::optional<Codec> with) {
    ScheduleCache cache;
    return choose(kFour, dtype, ReduceOp::kSum, kHuge, slow, options, cache, with).value().predicted_s;
  };
  const double exact_s = seconds(DType::kBFloat16, std::nullopt);
  const double part = seconds(DType::kBFloat16, codec("int8")) / exact_s;
  EXPECT_GT(part, 2 * ratio(codec("int8")) * 0.95);
  EXPECT_LT(part, 2 * ratio(codec("int8")) * 1.3 + 0.02);
  // As many bytes are twice as many elements to code.
  const auto coding_s = [&](DType dtype) {
    slow.set_work("int8", 0);
    const double without_s = seconds(dtype, codec("int8"));
    slow.set_work("int8", 1e-6);
    return seconds(dtype, codec("int8")) - without_s;
  };
  EXPECT_NEAR(coding_s(DType::kFloat16) / coding_s(DType::kFloat32), 2, 0.1);
}

TEST(CodecChoice, PricesSparseCodecsByWhatTheySend) {
  TunerOptions options;
  options.chunk_bytes = 0;
  options.algorithm = "direct";
  const auto coding_s = [&](const char* text, double of_100, std::optional<double> of_1000) {
    Topology topology = uniform(4, 1e-4, 4e-8);
    topology.set_work("top_k", 0);
    const double free_s = choice_with(text, kFour, topology, options).value().predicted_s;
    topology.set_work("top_k", of_100);
    if (of_1000) topology.set_work("top_k_1000", *of_1000);
    return choice_with(text, kFour, topology, options).value().predicted_s - free_s;
  };
  const double unit_s = coding_s("top_k:0.01", 1e-6, std::nullopt);
  const auto units = [&](const char* text, double of_100, std::optional<double> of_1000) {
    return coding_s(text, of_100 * 1e-6, of_1000 ? std::optional(*of_1000 * 1e-6) : std::nullopt) / unit_s;
  };
  EXPECT_GT(unit_s, 0);
  EXPECT_NEAR(units("top_k:0.01", 1, 0.55), 1, 0.01);
  EXPECT_NEAR(units("top_k:0.001", 1, 0.55), 0.55, 0.01);
  EXPECT_NEAR(units("top_k:0.1", 1, 0.55), 0.5 + 50 * 0.1, 0.05);  // 0.5 for all, 50 for each that is sent
  EXPECT_NEAR(units("top_k:0.001", 1, std::nullopt), 1, 0.01);
  // A disturbed measurement: fewer sent cannot take longer, nor many times less.
  EXPECT_NEAR(units("top_k:0.001", 1, 1.2), 1, 0.01);
  EXPECT_NEAR(units("top_k:0.0001", 1, 0.01), 0.01 / 2 + 0.0001 * 5, 0.001);
}

// What a message costs besides its bytes does not grow when it has fewer of them.
TEST(CodecChoice, CutsLessFinely) {
  TunerOptions options;
  options.chunk_bytes = 0;
  options.algorithm = "direct";
  const Topology topology = uniform(8, 1e-4, 4e-8);
  const int64_t exact = chosen(kEight, kHuge, topology, DType::kFloat32, ReduceOp::kSum, options).chunk_bytes;
  const auto chunk = [&](const char* text) {
    return choice_with(text, kEight, topology, options).value().chunk_bytes;
  };
  EXPECT_NEAR(static_cast<double>(chunk("int8")) * ratio(codec("int8")), static_cast<double>(exact), 64);
  EXPECT_GT(chunk("sign"), chunk("int8"));
}

TEST(CodecChoice, KnowsThatSmallMessagesAreHardlySmaller) {
  const auto predicted = [](int64_t bytes, std::optional<Codec> with) {
    ScheduleCache cache;
    TunerOptions options;
    options.algorithm = "direct";
    return choose(kFour, DType::kFloat32, ReduceOp::kSum, bytes, uniform(4, 0, 1e-6), options, cache, with)
        .value()
        .predicted_s;
  };
  EXPECT_GT(predicted(256, codec("int8")), predicted(256, std::nullopt));
  EXPECT_LT(predicted(1 << 20, codec("int8")), predicted(1 << 20, std::nullopt) / 3);
}

TEST(CodecChoice, KnowsThatCodingTakesTime) {
  TunerOptions options;
  options.chunk_bytes = 0;
  const Topology fast = uniform(4, 1e-6, 1e-11);  // faster than any core codes
  const double exact_s = chosen(kFour, kHuge, fast, DType::kFloat32, ReduceOp::kSum, options).predicted_s;
  EXPECT_GT(choice_with("int8", kFour, fast, options).value().predicted_s, exact_s);
}

TEST(CodecChoice, BelievesWhatWasMeasuredOfACodec) {
  Topology topology = uniform(4, 1e-5, 8e-10);
  const double assumed_s = choice_with("int8", kFour, topology).value().predicted_s;
  topology.set_work("int4", 1e-8);
  EXPECT_EQ(choice_with("int8", kFour, topology).value().predicted_s, assumed_s);
  topology.set_work("int8", 1e-8);
  // Of four ranks each encodes three quarters for others and its own sum, and decodes as much.
  EXPECT_GT(choice_with("int8", kFour, topology).value().predicted_s, assumed_s + 1e-8 * kHuge);
  topology.set_work("int8", 0);
  EXPECT_LT(choice_with("int8", kFour, topology).value().predicted_s, assumed_s);
}

TEST(CodecChoice, IsRefusedWhereThereIsNone) {
  TunerOptions forced;
  forced.algorithm = "ring";
  const Status ring = choice_with("int8", kFour, uniform(4, 1e-4, 8e-9), forced).status();
  EXPECT_EQ(ring.code(), Code::kInvalidArgument);
  EXPECT_NE(ring.message().find("no codec can be used with ring"), std::string::npos) << ring.message();
  const Collective gather{CollectiveKind::kAllGather, 4, 0};
  EXPECT_EQ(choice_with("int8", gather, uniform(4, 1e-4, 8e-9)).status().code(), Code::kInvalidArgument);
}

TEST(CodecChoice, IsRememberedByCodec) {
  const auto tuner = Tuner::create(uniform(4, 1e-4, 8e-9), {}).value();
  const auto with = [&](std::optional<Codec> codec) {
    return tuner->choose(kFour, DType::kFloat32, ReduceOp::kSum, kHuge, codec).value();
  };
  EXPECT_EQ(with(codec("int8")), with(codec("int8")));
  EXPECT_NE(with(codec("top_k:0.01")), with(codec("top_k:0.02")));
  EXPECT_GT(with(std::nullopt)->predicted_s, with(codec("int8"))->predicted_s);
}

}  // namespace
}  // namespace braid::testing

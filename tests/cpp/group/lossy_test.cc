// SPDX-License-Identifier: Apache-2.0
// All-reduces in fewer bytes, as a group carries them; tests/cpp/executor/lossy_test.cc has what they do to the
// numbers.
#include <algorithm>
#include <map>
#include <string>

#include "communicator/ranks.h"
#include "reduce/convert.h"

namespace braid::testing {
namespace {

using Vector = std::vector<float>;

// `per_host` ranks on each of some hosts that are not there.
void on_hosts(int ranks, int per_host, const std::function<void(Communicator&)>& body) {
  at_all_places(ranks, options_for(wires()[2]), [&](Place place) {
    place.options.links = "assume";
    place.options.host = "host " + std::to_string(place.rank / per_host);
    auto group = place.form("test");
    ASSERT_TRUE(group.ok()) << group.status().message();
    body(*group.value());
    group.value()->shutdown();
  });
}

Operation lossy(Vector& values, const std::string& codec, Vector* residual = nullptr) {
  Operation operation = all_reduce(values, DType::kFloat32, ReduceOp::kAvg);
  operation.lossy = Lossy{codec_from_text(codec).value(), residual == nullptr ? nullptr : residual->data(), 3};
  return operation;
}

Vector ramp(size_t count, Node rank) {
  Vector values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>((i * 37 + 11 * static_cast<size_t>(rank)) % 101) - 50;
  return values;
}

TEST(LossyGroup, AveragesWithinTheCodecsError) {
  for (const int per_host : {1, 2}) {
    on_hosts(4, per_host, [](Communicator& group) {
      for (const size_t count : {0, 1, 1009, 300'000}) {
        Vector exact = ramp(count, group.rank()), values = exact, residual(count, 0);
        ASSERT_TRUE(run(group, all_reduce(exact, DType::kFloat32, ReduceOp::kAvg)).ok());
        const Status status = run(group, lossy(values, "int8", &residual));
        ASSERT_TRUE(status.ok()) << status.message();
        // Two roundings, each of half a step of a block's largest, which is 50 at most.
        for (size_t i = 0; i < count; ++i) ASSERT_NEAR(values[i], exact[i], 2 * 0.5 / 127 * 50 * 1.01) << i;
        const bool is_kept = std::any_of(residual.begin(), residual.end(), [](float left) { return left != 0; });
        EXPECT_EQ(is_kept, count > 1) << count;
      }
    });
  }
}

TEST(LossyGroup, CountsWhatTravelledInACodecByItself) {
  on_hosts(3, 1, [](Communicator& group) {
    Vector values = ramp(1 << 16, group.rank());
    for (const char* codec : {"int8", "sign", "int8"}) ASSERT_TRUE(run(group, lossy(values, codec)).ok());
    ASSERT_TRUE(run(group, all_reduce(values)).ok());
    std::map<std::string, uint64_t> calls;
    for (const OperationStats& row : group.stats()) calls[row.algorithm] += row.calls;
    EXPECT_EQ(calls["direct int8"], 2u);
    EXPECT_EQ(calls["direct sign"], 1u);
  });
}

TEST(LossyGroup, LosesNothingOnOneHost) {
  on_all_ranks(3, options_for(wires()[0]), [](Communicator& group) {
    Vector exact = ramp(5000, group.rank()), values = exact, residual(5000, 7);
    ASSERT_TRUE(run(group, all_reduce(exact, DType::kFloat32, ReduceOp::kAvg)).ok());
    ASSERT_TRUE(run(group, lossy(values, "sign", &residual)).ok());
    EXPECT_EQ(values, exact);
    EXPECT_EQ(residual, Vector(5000, 7));
  });
}

TEST(LossyGroup, AveragesFloatsOf16Bits) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    on_hosts(3, 1, [dtype](Communicator& group) {
      const size_t count = 300'000;
      const Vector values = ramp(count, group.rank());  // whole numbers, which both hold
      std::vector<uint16_t> exact(count), coded(count);
      from_floats(dtype, values.data(), count, 1, reinterpret_cast<std::byte*>(exact.data()));
      coded = exact;
      Vector residual(count, 0);
      ASSERT_TRUE(run(group, all_reduce(exact, dtype, ReduceOp::kAvg)).ok());
      Operation operation = all_reduce(coded, dtype, ReduceOp::kAvg);
      operation.lossy = Lossy{codec_from_text("int8").value(), residual.data(), 3};
      const Status status = run(group, operation);
      ASSERT_TRUE(status.ok()) << status.message();
      Vector wanted(count), got(count);
      to_floats(dtype, reinterpret_cast<const std::byte*>(exact.data()), count, 1, wanted.data());
      to_floats(dtype, reinterpret_cast<const std::byte*>(coded.data()), count, 1, got.data());
      const float rounding = dtype == DType::kFloat16 ? 0x1p-10f : 0x1p-7f;
      for (size_t i = 0; i < count; ++i) ASSERT_NEAR(got[i], wanted[i], 2 * 0.5 / 127 * 50 * 1.01 + 50 * rounding);
    });
  }
}

TEST(LossyGroup, DrawsOtherNumbersEveryTime) {
  on_hosts(2, 1, [](Communicator& group) {
    Vector first = ramp(4096, 0), second = first;
    ASSERT_TRUE(run(group, lossy(first, "qsgd")).ok());
    ASSERT_TRUE(run(group, lossy(second, "qsgd")).ok());
    EXPECT_NE(first, second);
  });
}

TEST(LossyGroup, TellsRanksThatUseDifferentCodecs) {
  for (const bool one_is_exact : {false, true}) {
    on_hosts(2, 1, [&](Communicator& group) {
      Vector values(1 << 18);
      Operation operation = lossy(values, group.rank() == 0 ? "top_k:0.01" : "top_k:0.02");
      if (one_is_exact && group.rank() == 1) operation.lossy.reset();
      const Status status = run(group, std::move(operation));
      EXPECT_EQ(status.code(), Code::kMismatch) << status.message();
      EXPECT_TRUE(says(status, "by the codec top_k:0.0")) << status.message();
    });
  }
}

TEST(LossyGroup, RefusesWhatItCannotDo) {
  on_hosts(2, 1, [](Communicator& group) {
    Vector values(64), residual(64);
    std::vector<double> doubles(64);
    const auto refused = [&](const Operation& operation, const std::string& words) {
      const Status status = run(group, operation);
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.message();
      EXPECT_TRUE(says(status, words)) << status.message();
    };
    Operation maximum = lossy(values, "int8");
    maximum.op = ReduceOp::kMax;
    refused(maximum, "only a sum or an average of float32");
    Operation wide = all_reduce(doubles, DType::kFloat64);
    wide.lossy = maximum.lossy;
    refused(wide, "not sum of float64");
    Operation broadcast = lossy(values, "int8");
    broadcast.kind = CollectiveKind::kBroadcast;
    if (group.rank() == 1) broadcast.inputs.clear();
    refused(broadcast, "in an all_reduce");
    std::vector<uint16_t> halves(66);
    Operation half = all_reduce(halves, DType::kBFloat16, ReduceOp::kAvg);
    for (const char* codec : {"fp16", "bf16", "top_k:0.25"}) {
      half.lossy = Lossy{codec_from_text(codec).value()};
      refused(half, std::string(codec) + " makes bfloat16 no smaller");
    }
    half.lossy = Lossy{codec_from_text("int8").value(), reinterpret_cast<float*>(halves.data() + 64)};
    refused(half, "the residual overlaps");  // which is twice as long
    refused(lossy(values, "int8", &values), "the residual overlaps");
    Operation crooked = lossy(values, "int8");
    crooked.inputs = {crooked.inputs[0].subspan(1, 128)};
    crooked.outputs = {crooked.outputs[0].subspan(1, 128)};
    refused(crooked, "multiples of 4");
    ASSERT_TRUE(run(group, lossy(values, "int8", &residual)).ok());  // the group is unharmed
  });
}

TEST(LossyGroup, ExplainsWhatACodecGains) {
  on_hosts(3, 1, [](Communicator& group) {
    const auto predicted = [&](std::optional<Codec> codec) {
      return group.explain(CollectiveKind::kAllReduce, DType::kFloat32, ReduceOp::kAvg, 0, 1 << 24, codec)
          .value()
          .predicted_s;
    };
    const double exact = predicted(std::nullopt);
    EXPECT_LT(predicted(codec_from_text("int8").value()), exact / 2.5);
    EXPECT_LT(predicted(codec_from_text("sign").value()), exact / 8);
    const Codec int8 = codec_from_text("int8").value();
    const auto refused = group.explain(CollectiveKind::kAllReduce, DType::kFloat64, ReduceOp::kSum, 0, 64, int8);
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  });
}

}  // namespace
}  // namespace braid::testing

// SPDX-License-Identifier: Apache-2.0
// All ranks end with the same bits, which lack exactly what the residuals hold.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "executor/rehearsal.h"
#include "reduce/convert.h"
#include "support/every_algorithm.h"
#include "verify/owners.h"

namespace braid::testing {
namespace {

using Vector = std::vector<float>;

Vector numbers(size_t count, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::normal_distribution<float> normal;
  Vector values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<int> apart(int ranks) {
  std::vector<int> hosts(static_cast<size_t>(ranks));
  std::iota(hosts.begin(), hosts.end(), 0);
  return hosts;
}

struct Case {
  std::string codec = "int8";
  std::string algorithm = "direct";
  std::vector<int> hosts;
  size_t count = 1000;
  ReduceOp op = ReduceOp::kAvg;
  std::vector<uint64_t> shares = {};
  bool in_place = false;
  size_t chunk_bytes = 2048;
  DType dtype = DType::kFloat32;

  int ranks() const { return static_cast<int>(hosts.size()); }
  std::string text() const {
    return codec + " " + algorithm + " " + std::to_string(ranks()) + " ranks of " + std::to_string(count) + " " +
           std::string(name_of(dtype)) + (in_place ? " in place" : "");
  }
};

std::shared_ptr<const VerifiedSchedule> schedule_of(const Case& what) {
  const Collective collective{CollectiveKind::kAllReduce, what.ranks(), 0};
  return planned(*find_algorithm(collective.kind, what.algorithm), collective, {what.shares, what.hosts, 0});
}

using Memory = std::vector<std::byte>;

Memory stored(const Vector& values, DType dtype) {
  Memory memory(values.size() * size_of(dtype));
  from_floats(dtype, values.data(), values.size(), 1, memory.data());
  return memory;
}
Vector loaded(const Memory& memory, DType dtype) {
  Vector values(memory.size() / size_of(dtype));
  to_floats(dtype, memory.data(), values.size(), 1, values.data());
  return values;
}

// Runs it on `inputs`; what each rank has in the end. The residuals may be empty.
std::vector<Vector> run(const Case& what, const std::vector<Vector>& inputs, std::vector<Vector>& residuals,
                        uint32_t seed = 1) {
  std::vector<Memory> ins, outs(inputs.size(), stored(Vector(what.count, -7), what.dtype));
  for (const Vector& input : inputs) ins.push_back(stored(input, what.dtype));
  std::vector<Operands> operands;
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    Operands one{what.dtype, what.op, {ins[rank]}, {what.in_place ? ins[rank] : outs[rank]}};
    float* residual = residuals.empty() ? nullptr : residuals[rank].data();
    one.lossy = Lossy{codec_from_text(what.codec).value(), residual, seed};
    operands.push_back(std::move(one));
  }
  RehearsalOptions options;
  options.execution.chunk_bytes = what.chunk_bytes;
  options.execution.hosts = what.hosts;
  options.loopback.piece_bytes = 500;
  const auto schedule = schedule_of(what);
  EXPECT_TRUE(has_owners(*schedule, what.hosts)) << what.text();
  const Status status = rehearse(schedule, operands, options);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<Vector> outputs;
  for (const Memory& out : what.in_place ? ins : outs) outputs.push_back(loaded(out, what.dtype));
  return outputs;
}

std::vector<double> total(const std::vector<Vector>& vectors) {
  std::vector<double> sum(vectors[0].size(), 0);
  for (const Vector& vector : vectors) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += vector[i];
  }
  return sum;
}

// Some steps on new numbers each: the results are the same everywhere, and lack what is left over.
void expect_nothing_lost(const Case& what) {
  SCOPED_TRACE(what.text());
  const auto ranks = static_cast<size_t>(what.ranks());
  std::vector<Vector> residuals(ranks, Vector(what.count, 0));
  std::vector<double> in(what.count, 0), out(what.count, 0);
  for (int step = 0; step < 3; ++step) {
    std::vector<Vector> inputs;
    for (int rank = 0; rank < what.ranks(); ++rank) {
      inputs.push_back(loaded(stored(numbers(what.count, 100 * step + rank), what.dtype), what.dtype));
    }
    const std::vector<double> sum = total(inputs);
    const std::vector<Vector> outputs = run(what, inputs, residuals, static_cast<uint32_t>(step));
    for (size_t i = 0; i < what.count; ++i) {
      in[i] += sum[i] / (what.op == ReduceOp::kAvg ? what.ranks() : 1);
      out[i] += outputs[0][i];
    }
    for (size_t rank = 1; rank < ranks; ++rank) {
      ASSERT_TRUE(what.count == 0 ||
                  std::memcmp(outputs[rank].data(), outputs[0].data(), what.count * sizeof(float)) == 0)
          << rank;
    }
  }
  const std::vector<double> left = total(residuals);
  for (size_t i = 0; i < what.count; ++i) ASSERT_NEAR(in[i], out[i] + left[i], 2e-5) << i;
}

const char* const kCodecs[] = {"fp16", "bf16", "fp8_e4m3", "fp8_e5m2",   "int8",
                               "int4", "qsgd", "sign",     "top_k:0.05", "random_k:0.1"};

TEST(Lossy, LosesNothingForGood) {
  for (const char* codec : kCodecs) {
    for (const int ranks : {2, 3, 5, 8}) expect_nothing_lost({codec, "direct", apart(ranks), 4001});
  }
}

TEST(Lossy, LosesNothingOfAnySize) {
  for (const char* codec : {"int8", "sign", "top_k:0.25", "random_k:0.25"}) {
    for (const size_t count : {0, 1, 2, 3, 255, 20'011}) {
      for (const bool in_place : {false, true}) {
        expect_nothing_lost({codec, "direct", apart(3), count, ReduceOp::kSum, {}, in_place});
      }
    }
  }
}

// What the last rounding takes away is kept with the rest.
TEST(Lossy, LosesNothingOfFloatsOf16Bits) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const char* codec : {"fp8_e4m3", "int8", "qsgd", "sign", "top_k:0.05", "random_k:0.1"}) {
      for (const bool in_place : {false, true}) {
        expect_nothing_lost({codec, "direct", apart(3), 4001, ReduceOp::kAvg, {}, in_place, 2048, dtype});
        expect_nothing_lost({codec, "direct", {0, 0, 1}, 9001, ReduceOp::kSum, {}, in_place, 1 << 16, dtype});
      }
    }
    for (const size_t count : {0, 1, 2, 257}) {
      expect_nothing_lost({"int8", "direct", apart(3), count, ReduceOp::kAvg, {}, false, 2048, dtype});
    }
    expect_nothing_lost({"int4", "direct", apart(4), 5003, ReduceOp::kAvg, {1, 5, 0, 2}, false, 2048, dtype});
  }
}

// A sum that float16 cannot hold on the way: 40000 twice, whose average it can.
TEST(Lossy, AddsUpIn32Bits) {
  std::vector<Vector> inputs(2, Vector(300, 40'000)), none;
  const Case what{"int8", "direct", apart(2), 300, ReduceOp::kAvg, {}, false, 2048, DType::kFloat16};
  for (const Vector& output : run(what, inputs, none)) {
    for (const float value : output) EXPECT_NEAR(value, 40'000, 40'000 * 0x1p-10);
  }
}

TEST(Lossy, WhatIsNotFiniteLeavesNoTraceIn16Bits) {
  const float huge = 60'000, infinity = std::numeric_limits<float>::infinity();
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    std::vector<Vector> inputs(2, Vector(1024, 1)), residuals(2, Vector(1024, 0));
    inputs[0][3] = NAN;
    inputs[1][700] = infinity;
    inputs[0][300] = inputs[1][300] = huge;  // in float16 their sum is infinite
    const Case what{"int8", "direct", apart(2), 1024, ReduceOp::kSum, {}, false, 1 << 16, dtype};
    const std::vector<Vector> outputs = run(what, inputs, residuals);
    for (const Vector& output : outputs) {
      EXPECT_TRUE(std::isnan(output[3]));
      EXPECT_FALSE(std::isfinite(output[700]));
      EXPECT_EQ(std::isinf(output[300]), dtype == DType::kFloat16);
      EXPECT_EQ(stored(output, dtype), stored(outputs[0], dtype));
    }
    for (const Vector& residual : residuals) {
      EXPECT_TRUE(std::all_of(residual.begin(), residual.end(), [](float left) { return std::isfinite(left); }));
    }
  }
}

TEST(Lossy, LosesNothingWithUnequalShares) {
  for (const std::vector<uint64_t>& shares : std::vector<std::vector<uint64_t>>{{1, 5, 0, 2}, {0, 0, 0, 1}}) {
    expect_nothing_lost({"int4", "direct", apart(4), 5003, ReduceOp::kAvg, shares});
  }
}

TEST(Lossy, LosesNothingWhereSomeRanksShareAHost) {
  for (const char* codec : {"int8", "sign", "random_k:0.1"}) {
    for (const bool in_place : {false, true}) {
      for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 0, 1, 1}, {0, 1, 0, 2, 1, 0}}) {
        for (const char* algorithm : {"direct", "hierarchical_direct"}) {
          expect_nothing_lost({codec, algorithm, hosts, 6007, ReduceOp::kAvg, {}, in_place});
        }
      }
    }
  }
}

TEST(Lossy, LosesNothingWithUnequalSharesOfHosts) {
  for (const std::vector<uint64_t>& shares : std::vector<std::vector<uint64_t>>{{1, 5, 2}, {0, 3, 1}}) {
    expect_nothing_lost({"int8", "hierarchical_direct", {0, 1, 0, 2, 1, 0}, 5003, ReduceOp::kAvg, shares, true});
  }
}

// After a change of plan a rank may hand what it has to another of its host, and owes what its residual holds.
TEST(Lossy, LeavesNothingBehindWhenThePlanChanges) {
  const size_t count = 3000;
  const std::vector<int> hosts = {0, 0, 1, 1};
  const std::vector<Case> plans = {
      {"int4", "direct", hosts, count, ReduceOp::kAvg, {}, false, 512},
      {"int4", "hierarchical_direct", hosts, count},
      {"int4", "direct", hosts, count, ReduceOp::kAvg, {1, 5, 0, 2}},
      {"int4", "hierarchical_direct", hosts, count, ReduceOp::kAvg, {7, 1}},
  };
  for (const Case& before : plans) {
    for (const Case& after : plans) {
      std::vector<Vector> inputs, residuals(4, Vector(count, 0));
      for (int rank = 0; rank < 4; ++rank) inputs.push_back(numbers(count, rank));
      run(before, inputs, residuals);
      for (int step = 0; step < 8; ++step) run(after, std::vector<Vector>(4, Vector(count, 0)), residuals);
      for (const Vector& residual : residuals) {
        for (const float left : residual)
          ASSERT_LT(std::abs(left), 1e-3f) << before.text() << ", " << after.text();
      }
    }
  }
}

TEST(Lossy, LeavesLittleBehindIn16BitsWhenThePlanChanges) {
  const size_t count = 3000;
  const std::vector<int> hosts = {0, 0, 1, 1};
  const Case plans[] = {
      {"int4", "direct", hosts, count, ReduceOp::kAvg, {}, false, 512, DType::kBFloat16},
      {"int4", "direct", hosts, count, ReduceOp::kAvg, {1, 5, 0, 2}, false, 2048, DType::kBFloat16},
  };
  for (const int first : {0, 1}) {
    std::vector<Vector> inputs, residuals(4, Vector(count, 0));
    for (int rank = 0; rank < 4; ++rank) inputs.push_back(numbers(count, rank));
    run(plans[first], inputs, residuals);
    for (int step = 0; step < 8; ++step)
      run(plans[1 - first], std::vector<Vector>(4, Vector(count, 0)), residuals);
    for (const Vector& residual : residuals) {
      for (const float left : residual) ASSERT_LT(std::abs(left), 1e-3f);
    }
  }
}

TEST(Lossy, StaysInsideAHostExact) {
  // Sums of whole numbers below 128: what int8 keeps exactly where the largest is 127, as it is on both hosts.
  std::vector<Vector> inputs(4, Vector(512, 1));
  for (Vector& input : inputs) input[0] = input[256] = 31.75f;
  std::vector<Vector> none;
  const Case what{"int8", "hierarchical_direct", {0, 0, 1, 1}, 512, ReduceOp::kSum, {}, false, 1 << 20};
  const std::vector<Vector> outputs = run(what, inputs, none);
  for (const Vector& output : outputs) {
    EXPECT_EQ(output[0], 127);
    EXPECT_EQ(output[1], 4);
  }
}

// One segment, done by hand.
TEST(Lossy, IsWhatItSaysItIs) {
  for (const std::string codec_text : {"fp16", "int8", "int4", "sign", "top_k:0.1"}) {
    SCOPED_TRACE(codec_text);
    const Codec codec = codec_from_text(codec_text).value();
    const Case what{codec_text, "direct", apart(3), 900, ReduceOp::kAvg, {}, false, 1 << 20};
    std::vector<Vector> inputs, residuals;
    for (int rank = 0; rank < 3; ++rank) {
      inputs.push_back(numbers(900, rank));
      residuals.push_back(numbers(900, rank + 50));
    }
    std::vector<Vector> left = residuals;
    const float third = 1.0f / 3;
    Vector expected(900);
    for (int owner = 0; owner < 3; ++owner) {  // of 300 elements each
      const size_t begin = 300 * static_cast<size_t>(owner);
      std::vector<std::byte> message(encoded_bytes(codec, 300));
      float* const sum = expected.data() + begin;
      for (size_t i = 0; i < 300; ++i) sum[i] = inputs[static_cast<size_t>(owner)][begin + i] * third;
      for (size_t rank = 0; rank < 3; ++rank) {
        if (static_cast<int>(rank) == owner) continue;
        encode(codec, inputs[rank].data() + begin, 300, third, left[rank].data() + begin, 0, message);
        ASSERT_TRUE(decode_add(codec, message, sum, 300).ok());
      }
      encode(codec, sum, 300, 1, left[static_cast<size_t>(owner)].data() + begin, 0, message);
      ASSERT_TRUE(decode(codec, message, sum, 300).ok());
    }
    const std::vector<Vector> outputs = run(what, inputs, residuals);
    EXPECT_EQ(outputs[0], expected);
    EXPECT_EQ(residuals, left);
  }
}

TEST(Lossy, WithoutAResidualForgetsWhatWasLost) {
  std::vector<Vector> none;
  const Case what{"sign", "direct", apart(2), 1024};
  const std::vector<Vector> inputs = {numbers(1024, 1), numbers(1024, 2)};
  EXPECT_EQ(run(what, inputs, none), run(what, inputs, none));
}

TEST(Lossy, DrawsOtherNumbersForOtherSeedsAndRanks) {
  std::vector<Vector> none;
  const Case what{"qsgd", "direct", apart(2), 1024};
  const std::vector<Vector> same = {numbers(1024, 1), numbers(1024, 1)};
  EXPECT_EQ(run(what, same, none, 5), run(what, same, none, 5));
  EXPECT_NE(run(what, same, none, 5), run(what, same, none, 6));
}

// Every rank's block of it, in segments, of blocks that need not be equal.
void expect_scattered(DType dtype) {
  for (const char* codec : kCodecs) {
    for (const std::vector<int>& hosts :
         std::vector<std::vector<int>>{{0, 1}, {0, 1, 2}, {0, 0, 1, 1}, {0, 1, 0, 2, 1}}) {
      for (const char* algorithm : {"direct", "hierarchical"}) {
        const int ranks = static_cast<int>(hosts.size());
        const Collective collective{CollectiveKind::kReduceScatter, ranks, 0};
        const auto schedule = planned(*find_algorithm(collective.kind, algorithm), collective, {{}, hosts, 0});
        if (!has_owners(*schedule, hosts)) continue;
        if (dtype != DType::kFloat32 && std::string(algorithm) == "hierarchical") continue;  // rounds twice
        SCOPED_TRACE(std::string(codec) + " " + algorithm + " " + std::to_string(ranks) + " " +
                     std::string(name_of(dtype)));
        const auto size_of_block = [](int owner) { return 1500 + 7 * static_cast<size_t>(owner % 2); };
        size_t count = 0;
        for (int owner = 0; owner < ranks; ++owner) count += size_of_block(owner);
        std::vector<Vector> inputs, residuals;
        std::vector<Memory> ins, outs;
        std::vector<Operands> operands;
        for (int rank = 0; rank < ranks; ++rank) {
          ins.push_back(stored(numbers(count, rank), dtype));
          inputs.push_back(loaded(ins.back(), dtype));
          outs.emplace_back(size_of_block(rank) * size_of(dtype));
          residuals.push_back(numbers(count, 90 + rank));
        }
        const std::vector<double> in = total(inputs), old = total(residuals);
        for (size_t rank = 0; rank < inputs.size(); ++rank) {
          Operands one{dtype, ReduceOp::kAvg, {}, {outs[rank]}};
          size_t at = 0;
          for (int owner = 0; owner < ranks; ++owner) {
            const size_t bytes = size_of_block(owner) * size_of(dtype);
            one.inputs.push_back(ConstBytes(ins[rank]).subspan(at, bytes));
            at += bytes;
          }
          one.lossy = Lossy{codec_from_text(codec).value(), residuals[rank].data(), 1};
          operands.push_back(std::move(one));
        }
        RehearsalOptions options;
        options.execution.chunk_bytes = 2048;
        options.execution.hosts = hosts;
        const Status status = rehearse(schedule, operands, options);
        ASSERT_TRUE(status.ok()) << status.message();
        const std::vector<double> left = total(residuals);
        size_t i = 0;
        for (const Memory& out : outs) {
          for (const float value : loaded(out, dtype)) {
            ASSERT_NEAR(value + left[i], in[i] / ranks + old[i], 2e-5) << i;
            ++i;
          }
        }
      }
    }
  }
}

TEST(Lossy, ScattersWhatTheResidualsLack) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) expect_scattered(dtype);
}

// What is no number reaches everybody, and stays nowhere.
TEST(Lossy, PassesOnWhatIsNoNumber) {
  for (const char* codec : kCodecs) {
    SCOPED_TRACE(codec);
    const Case what{codec, "direct", apart(3), 999};
    std::vector<Vector> inputs, residuals(3, Vector(999, 0));
    for (int rank = 0; rank < 3; ++rank) inputs.push_back(numbers(999, rank));
    inputs[1][700] = std::nanf("");
    inputs[2][100] = INFINITY;
    const std::vector<Vector> outputs = run(what, inputs, residuals);
    const bool is_drawn = std::string(codec).starts_with("random_k");  // where what is sent of ten is another
    const auto shows = [&](const Vector& output, ptrdiff_t at) {
      const ptrdiff_t around = is_drawn ? 9 : 0;
      return !std::all_of(output.begin() + at - around, output.begin() + at + around + 1,
                          [](float value) { return std::isfinite(value); });
    };
    for (const Vector& output : outputs) {
      EXPECT_TRUE(shows(output, 700));
      EXPECT_TRUE(shows(output, 100));
    }
    for (const Vector& residual : residuals) {
      for (const float value : residual) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

}  // namespace
}  // namespace braid::testing

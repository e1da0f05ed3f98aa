// SPDX-License-Identifier: Apache-2.0
// What the codecs promise: error bounds, unbiasedness, linearity, what becomes of NaNs, nothing lost over time.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "codec/inputs.h"
#include "codec/stream.h"

namespace braid::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(CodecMeaning, ErrorsStayWithinTheBounds) {
  for (const std::string& text : dense_codec_texts()) {
    const Codec codec = codec_of(text);
    const auto block = static_cast<size_t>(traits(codec.kind).block_elements);
    const double bound = traits(codec.kind).error_bound * (1 + 1e-4);  // the scale is rounded too
    for (const Input input : {Input::kBell, Input::kWide, Input::kAwkward, Input::kEqual, Input::kHuge}) {
      const std::vector<float> values = numbers(input, 3000, 1);
      const std::vector<float> result = decoded(codec, encoded(codec, values, 1, nullptr, 7), values.size());
      for (size_t begin = 0; begin < values.size(); begin += block) {
        const size_t end = std::min(begin + block, values.size());
        double largest = 0;
        for (size_t i = begin; i < end; ++i) largest = std::max<double>(largest, std::fabs(values[i]));
        if (text == "sign" && std::isnan(result[begin])) continue;  // the sum of so many was infinite
        if (text == "fp16" && (largest < 0x1p-14 || largest > 65504)) continue;
        if (largest < 0x1p-100) continue;
        for (size_t i = begin; i < end; ++i) {
          ASSERT_LE(std::fabs(double{values[i]} - double{result[i]}), bound * largest)
              << text << " " << int(input) << ": " << values[i] << " became " << result[i];
        }
      }
    }
  }
}

TEST(CodecMeaning, BlocksOfNextToNothingBecomeZerosAndStayBehind) {
  for (const char* text : {"fp8_e4m3", "int8", "int4", "qsgd"}) {
    const Codec codec = codec_of(text);
    std::vector<float> values(300, 0x1p-101f), left(300);
    EXPECT_EQ(decoded(codec, encoded(codec, values, 1, &left), 300), std::vector<float>(300));
    EXPECT_EQ(left, values) << text;
  }
}

// Means over many seeds, against five times their standard deviation.
TEST(CodecMeaning, QsgdIsUnbiased) {
  constexpr uint32_t kSeeds = 2000;
  const Codec codec = codec_of("qsgd");
  ASSERT_TRUE(traits(codec.kind).is_unbiased);
  const std::vector<float> values = numbers(Input::kBell, 256, 2);
  std::vector<double> sums(values.size());
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const std::vector<float> result = decoded(codec, encoded(codec, values, 1, nullptr, seed), values.size());
    for (size_t i = 0; i < values.size(); ++i) sums[i] += result[i];
  }
  double step = 0, squares = 0;
  for (const float value : values) step = std::max(step, std::fabs(value) / 127.0);
  for (size_t i = 0; i < values.size(); ++i) {
    const double up = std::fabs(values[i]) / step - std::floor(std::fabs(values[i]) / step);
    const double deviation = step * std::sqrt(up * (1 - up) / kSeeds);
    const double error = sums[i] / kSeeds - values[i];
    ASSERT_LE(std::fabs(error), 5 * deviation + 1e-6) << values[i];
    squares += deviation > 1e-4 * step ? (error / deviation) * (error / deviation) : 1;
  }
  EXPECT_NEAR(squares / static_cast<double>(values.size()), 1, 0.4);  // and neither are they too good
}

TEST(CodecMeaning, OnlyRandomCodecsLookAtTheSeed) {
  const std::vector<float> values = numbers(Input::kBell, 2000, 3);
  for (const std::string& text : codec_texts()) {
    const Codec codec = codec_of(text);
    const bool random = codec.kind == CodecKind::kQsgd || codec.kind == CodecKind::kRandomK;
    EXPECT_EQ(encoded(codec, values, 1, nullptr, 1) != encoded(codec, values, 1, nullptr, 2), random) << text;
  }
}

TEST(CodecMeaning, RandomKIsLinear) {
  const Codec codec = codec_of("random_k:0.1");
  ASSERT_TRUE(traits(codec.kind).is_linear);
  constexpr size_t n = 1003;
  std::vector<float> a(n), b(n), sum(n);
  for (size_t i = 0; i < n; ++i) {
    a[i] = static_cast<float>(i + 1);
    b[i] = static_cast<float>(3 * i);
    sum[i] = a[i] + b[i];
  }
  std::vector<std::byte> added = encoded(codec, a, 1, nullptr, 9);
  const std::vector<std::byte> other = encoded(codec, b, 1, nullptr, 9);
  for (size_t at = 16; at < added.size();
       at += sizeof(float)) {  // after the header all is floats, the padding zeros
    float x, y;
    std::memcpy(&x, added.data() + at, sizeof x);
    std::memcpy(&y, other.data() + at, sizeof y);
    x += y;
    std::memcpy(added.data() + at, &x, sizeof x);
  }
  EXPECT_EQ(added, encoded(codec, sum, 1, nullptr, 9));
  // One of each stretch, and not always the same.
  std::set<size_t> places;
  const std::vector<float> result = decoded(codec, added, n);
  for (size_t begin = 0; begin < n; begin += 10) {
    const size_t end = std::min(begin + 10, n);
    size_t sent = 0;
    for (size_t i = begin; i < end; ++i) {
      if (result[i] == 0) continue;
      EXPECT_EQ(result[i], sum[i]);
      places.insert(i - begin);
      ++sent;
    }
    EXPECT_EQ(sent, 1u) << begin;
  }
  EXPECT_EQ(places.size(), 10u);
}

TEST(CodecMeaning, ABlockWithWhatIsNotFiniteBecomesNan) {
  for (const char* text : {"fp8_e4m3", "fp8_e5m2", "int8", "int4", "qsgd", "sign"}) {
    const Codec codec = codec_of(text);
    const auto block = static_cast<size_t>(traits(codec.kind).block_elements);
    for (const float odd : {kInfinity, -kInfinity, kNan}) {
      std::vector<float> values(3 * block, 1.0f), left(3 * block, 0.25f);
      values[block + 17] = odd;
      const std::vector<float> result = decoded(codec, encoded(codec, values, 1, &left), values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        const bool inside = i / block == 1;
        ASSERT_EQ(std::isnan(result[i]), inside) << text << " " << i;
        ASSERT_TRUE(inside ? left[i] == 0 : std::isfinite(left[i])) << text << " " << i;
      }
    }
  }
}

TEST(CodecMeaning, UnscaledCodecsKeepWhatIsNotFiniteToItself) {
  std::vector<float> values(100, 1.0f);
  values[3] = kInfinity;
  values[4] = -kNan;
  values[5] = -kInfinity;
  for (const char* text : {"fp16", "bf16", "top_k:0.03"}) {
    const Codec codec = codec_of(text);
    std::vector<float> left(100, 0.5f);
    const std::vector<float> result = decoded(codec, encoded(codec, values, 1, &left), 100);
    EXPECT_EQ(result[3], kInfinity) << text;
    EXPECT_TRUE(std::isnan(result[4])) << text;
    EXPECT_EQ(result[5], -kInfinity) << text;
    for (const float value : left) EXPECT_TRUE(std::isfinite(value)) << text;
    EXPECT_EQ(left[3], 0) << text;
    EXPECT_EQ(left[4], 0) << text;
  }
  // What a sparse codec does not send is not kept if it is not finite.
  const std::vector<float> nans(100, kNan);
  for (const char* text : {"top_k:0.1", "random_k:0.1"}) {
    std::vector<float> left(100, 1.0f);
    const std::vector<float> result = decoded(codec_of(text), encoded(codec_of(text), nans, 1, &left), 100);
    EXPECT_EQ(std::count_if(result.begin(), result.end(), [](float value) { return std::isnan(value); }), 10)
        << text;
    EXPECT_EQ(left, std::vector<float>(100)) << text;
  }
}

// Two in one stretch: in two tiles, or one of them chosen.
TEST(CodecMeaning, RandomKSendsANanForSeveralThatAreNotFinite) {
  constexpr size_t n = 2 * kTileElements;
  const Codec codec = codec_of("random_k:0.01");
  const std::vector<float> ones(n, 1.0f);
  constexpr size_t begin = kTileElements / 100 * 100;
  static_assert(begin < kTileElements && kTileElements < begin + 100);
  for (uint32_t seed = 0; seed < 150; ++seed) {
    const std::vector<float> drawn = decoded(codec, encoded(codec, ones, 1, nullptr, seed), n);
    const auto sent = static_cast<size_t>(
        std::find(drawn.begin() + static_cast<ptrdiff_t>(begin), drawn.end(), 1.0f) - drawn.begin());
    for (const size_t other : {begin, kTileElements - 1, kTileElements, begin + 99}) {
      for (const size_t first : {sent, kTileElements - 1}) {
        if (first == other) continue;
        std::vector<float> values = ones, left(n, 0.0f);
        values[first] = values[other] = kInfinity;
        for (std::vector<float>* residual : {static_cast<std::vector<float>*>(nullptr), &left}) {
          const std::vector<float> result = decoded(codec, encoded(codec, values, 1, residual, seed), n);
          EXPECT_TRUE(std::isnan(result[sent])) << seed << " " << first << " " << other;
        }
        EXPECT_TRUE(std::all_of(left.begin(), left.end(), [](float value) { return std::isfinite(value); }));
      }
    }
  }
}

// random_k draws each element sooner or later; a stretch may begin in one tile and end in the next.
TEST(CodecMeaning, RandomKShowsWhatIsNotFiniteWhereverItIs) {
  constexpr size_t n = 2 * kTileElements + 150;
  const Codec codec = codec_of("random_k:0.01");
  const std::vector<float> ones(n, 1.0f);
  const auto places = {size_t{0}, size_t{99}, size_t{100}, kTileElements - 1, kTileElements, n - 51, n - 1};
  size_t chosen = 0, beside = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    const std::vector<float> drawn = decoded(codec, encoded(codec, ones, 1, nullptr, seed), n);
    for (const size_t place : places) {
      for (const float odd : {kInfinity, kNan}) {
        std::vector<float> values = ones, left(n, 0.0f), expected = drawn;
        values[place] = odd;
        const size_t begin = place / 100 * 100, end = std::min(begin + 100, n);
        const auto sent = std::find(expected.begin() + static_cast<ptrdiff_t>(begin),
                                    expected.begin() + static_cast<ptrdiff_t>(end), 1.0f);
        const bool is_chosen = sent - expected.begin() == static_cast<ptrdiff_t>(place);
        *sent = is_chosen ? odd : kNan;
        (is_chosen ? chosen : beside) += 1;
        for (std::vector<float>* residual : {static_cast<std::vector<float>*>(nullptr), &left}) {
          const std::vector<float> result = decoded(codec, encoded(codec, values, 1, residual, seed), n);
          for (size_t i = begin; i < end; ++i) {
            ASSERT_TRUE(result[i] == expected[i] || (std::isnan(result[i]) && std::isnan(expected[i])))
                << place << " " << i << " " << seed;
          }
          ASSERT_EQ(std::count_if(result.begin(), result.end(), [](float x) { return !std::isfinite(x); }), 1);
        }
        ASSERT_EQ(std::count(left.begin(), left.end(), 1.0f),
                  n - std::count(drawn.begin(), drawn.end(), 1.0f) - !is_chosen);
        ASSERT_EQ(left[place], 0);
      }
    }
  }
  EXPECT_GT(chosen, 0u);
  EXPECT_GT(beside, 0u);
}

TEST(CodecMeaning, FiniteStaysFinite) {
  for (const std::string& text : dense_codec_texts()) {
    if (text == "sign") continue;  // whose mean may be infinite
    const std::vector<float> values = numbers(Input::kHuge, 600, 4);
    for (const float value : decoded(codec_of(text), encoded(codec_of(text), values), values.size())) {
      ASSERT_TRUE(std::isfinite(value)) << text;
    }
  }
}

// Error feedback: what has been decoded in all, and what is left, is what has been encoded in all.
TEST(CodecMeaning, NothingIsLostOverTime) {
  constexpr size_t n = 1500;
  constexpr int kSteps = 60;
  for (const std::string& text : codec_texts()) {
    const Codec codec = codec_of(text);
    std::vector<float> residual(n), total(n);
    std::vector<double> exact(n);
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<float> values = numbers(Input::kBell, n, 100 + static_cast<uint32_t>(step));
      for (size_t i = 0; i < n; ++i) exact[i] += 0.5 * double{values[i]};
      const auto message = encoded(codec, values, 0.5f, &residual, static_cast<uint32_t>(step));
      ASSERT_TRUE(decode_add(codec, message, total.data(), n).ok());
    }
    for (size_t i = 0; i < n; ++i) ASSERT_NEAR(total[i] + residual[i], exact[i], 1e-3) << text << " " << i;
  }
}

}  // namespace
}  // namespace braid::testing

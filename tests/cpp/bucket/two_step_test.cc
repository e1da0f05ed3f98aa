// SPDX-License-Identifier: Apache-2.0
// What the bucket does in one pass, beside the plain two steps: everything into one vector, and the codec on that. Bit
// for bit.
#include <gtest/gtest.h>

#include "bucket/tensors.h"

namespace braid::testing {
namespace {

constexpr float kScale = 0.3f;

// Ranges that begin and end inside of tensors, at their ends, and within runs of empty ones.
std::vector<BucketRange> ranges_of(const Bucket& bucket) {
  const size_t n = bucket.elements();
  return {{0, n},     {0, 0},        {n, n},    {0, 1},        {1, 8},           {8, 264},
          {n - 1, n}, {3, n - 3},    {5, 5},    {100, 4196},   {263, 4361},      {n / 3, n / 3 + 8191},
          {n / 2, n}, {4097, 12289}, {1, 4098}, {n - 1200, n}, {n - 1026, n - 1}};
}

std::vector<float> part(const std::vector<float>& all, BucketRange range) {
  return {all.begin() + static_cast<ptrdiff_t>(range.begin), all.begin() + static_cast<ptrdiff_t>(range.end)};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

std::vector<float> noise(size_t elements, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> number(-1, 1);
  std::vector<float> values(elements);
  for (float& value : values) value = number(random);
  return values;
}

std::string named(const Codec& codec, BucketRange range) {
  return to_text(codec) + " of " + std::to_string(range.begin) + " to " + std::to_string(range.end);
}

TEST(BucketTwoStep, PackIsTheTensorsOneAfterAnother) {
  Tensors tensors = mixed_tensors();
  tensors.fill(1);
  const Bucket bucket = tensors.bucket();
  std::vector<float> all = tensors.flat();
  ASSERT_EQ(bucket.elements(), all.size());
  ASSERT_EQ(bucket.tensors(), tensors.table.size());
  for (float& value : all) value *= kScale;
  for (const BucketRange range : ranges_of(bucket)) {
    std::vector<float> packed(range.end - range.begin);
    ASSERT_TRUE(bucket.pack(range, kScale, packed).ok());
    ASSERT_TRUE(same_bits(packed, part(all, range))) << range.begin << " to " << range.end;
  }
}

TEST(BucketTwoStep, UnpackWritesTheRangeAndNothingElse) {
  Tensors tensors = mixed_tensors();
  const Bucket bucket = tensors.bucket();
  for (const BucketRange range : ranges_of(bucket)) {
    tensors.fill(2);
    Tensors expected = mixed_tensors();
    std::vector<float> all = tensors.flat();
    const std::vector<float> flat = noise(range.end - range.begin, 3);
    for (size_t i = 0; i < flat.size(); ++i) all[range.begin + i] = flat[i] * kScale;
    expected.assign(all, 1);
    ASSERT_TRUE(bucket.unpack(flat, range, kScale).ok());
    ASSERT_EQ(tensors.bytes(), expected.bytes()) << range.begin << " to " << range.end;
  }
}

TEST(BucketTwoStep, EncodeMakesTheSameMessageAndResidual) {
  Tensors tensors = mixed_tensors();
  tensors.fill(4);
  const Bucket bucket = tensors.bucket();
  const std::vector<float> all = tensors.flat();
  for (const Codec& codec : all_codecs()) {
    for (const BucketRange range : ranges_of(bucket)) {
      const size_t n = range.end - range.begin;
      std::vector<float> residual = noise(n, 5), expected_residual = residual;
      std::vector<std::byte> message(encoded_bytes(codec, n)), expected = message;
      ASSERT_TRUE(bucket.encode(codec, range, kScale, residual, 6, message).ok());
      encode(codec, part(all, range).data(), n, kScale, expected_residual.data(), 6, expected);
      ASSERT_EQ(message, expected) << named(codec, range);
      ASSERT_TRUE(same_bits(residual, expected_residual)) << named(codec, range);

      ASSERT_TRUE(bucket.encode(codec, range, kScale, {}, 6, message).ok());
      encode(codec, part(all, range).data(), n, kScale, nullptr, 6, expected);
      ASSERT_EQ(message, expected) << named(codec, range) << ", the loss forgotten";
    }
  }
}

TEST(BucketTwoStep, DecodeWritesWhatTheMessageHolds) {
  Tensors tensors = mixed_tensors();
  const Bucket bucket = tensors.bucket();
  for (const Codec& codec : all_codecs()) {
    for (const BucketRange range : ranges_of(bucket)) {
      const size_t n = range.end - range.begin;
      const std::vector<float> sent = noise(n, 7);
      std::vector<std::byte> message(encoded_bytes(codec, n));
      encode(codec, sent.data(), n, 1, nullptr, 8, message);
      std::vector<float> decoded(n);
      ASSERT_TRUE(decode(codec, message, decoded.data(), n).ok());

      tensors.fill(9);
      Tensors expected = mixed_tensors();
      std::vector<float> all = tensors.flat();
      for (size_t i = 0; i < n; ++i) all[range.begin + i] = decoded[i] * kScale;
      expected.assign(all, 1);
      ASSERT_TRUE(bucket.decode(codec, message, range, kScale).ok());
      ASSERT_EQ(tensors.bytes(), expected.bytes()) << named(codec, range);
    }
  }
}

// Pieces of an exchange: each has its message, and together they are the vector.
TEST(BucketTwoStep, UnequalPiecesMakeUpTheWhole) {
  Tensors tensors = mixed_tensors(), arrived = mixed_tensors();
  tensors.fill(10);
  arrived.fill(11);
  const Bucket from = tensors.bucket(), to = arrived.bucket();
  const Codec codec = codec_from_text("fp16").value();
  for (size_t begin = 0, length = 1; begin < from.elements(); begin += length, length = length * 3 + 1) {
    const BucketRange range{begin, std::min(begin + length, from.elements())};
    std::vector<std::byte> message(encoded_bytes(codec, range.end - range.begin));
    ASSERT_TRUE(from.encode(codec, range, 1, {}, 0, message).ok());
    ASSERT_TRUE(to.decode(codec, message, range, 1).ok());
  }
  std::vector<float> halves = tensors.flat();
  std::vector<uint16_t> bits(halves.size());
  from_floats(DType::kFloat16, halves.data(), halves.size(), 1, reinterpret_cast<std::byte*>(bits.data()));
  to_floats(DType::kFloat16, reinterpret_cast<const std::byte*>(bits.data()), bits.size(), 1, halves.data());
  Tensors expected = mixed_tensors();
  expected.assign(halves, 1);
  EXPECT_EQ(arrived.bytes(), expected.bytes());
}

// Rounded once, to nearest even; what the dtype cannot hold becomes infinite.
TEST(BucketTwoStep, RoundsAsTorchDoes) {
  Tensors tensors;
  tensors.add(DType::kFloat16, 3);
  tensors.add(DType::kBFloat16, 3);
  const float flat[] = {65519.0f, 65520.0f, 1.00048828125f, 3.4e38f, -3.4e38f, 1.00390625f};
  ASSERT_TRUE(tensors.bucket().unpack(flat, {0, 6}, 1).ok());
  const auto is = [&](size_t tensor, std::vector<uint16_t> bits) {
    return std::memcmp(tensors.table[tensor].data, bits.data(), 6) == 0;
  };
  EXPECT_TRUE(is(0, {0x7bff, 0x7c00, 0x3c00}));
  EXPECT_TRUE(is(1, {0x7f80, 0xff80, 0x3f80}));
}

}  // namespace
}  // namespace braid::testing

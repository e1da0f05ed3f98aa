// SPDX-License-Identifier: Apache-2.0
// Every instruction set against the definition, bit by bit: messages, residuals, decoded floats.
#include <gtest/gtest.h>

#include "codec/inputs.h"
#include "codec/reference.h"
#include "codec/stream.h"
#include "support/instruction_sets.h"

namespace braid::testing {
namespace {

using Case = std::tuple<std::string_view, std::string>;

class CodecMatrix : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { ASSERT_TRUE(set_instruction_set(std::get<0>(GetParam()))); }
  void TearDown() override { set_instruction_set(before_); }

  const Codec codec_ = codec_of(std::get<1>(GetParam()));
  std::string_view before_ = instruction_set_name();
};

constexpr size_t kSizes[] = {0, 1, 7, 31, 255, 256, 257, 1023, 1024, 4096, 4097, 10007};
constexpr uint32_t kSeed = 12345;

TEST_P(CodecMatrix, MessagesAndResiduals) {
  for (const size_t n : kSizes) {
    for (const Input input : kInputs) {
      const std::vector<float> values = numbers(input, n, 1);
      for (const float scale : {1.0f, 0.3f}) {
        std::vector<float> sums = values;
        for (float& sum : sums) sum *= scale;
        const ReferenceEncoder plain(codec_, sums, kSeed);
        ASSERT_EQ(encoded(codec_, values, scale, nullptr, kSeed), plain.message()) << n << " " << int(input);

        std::vector<float> residual = numbers(Input::kBell, n, 2);
        for (size_t i = 0; i < n; ++i) sums[i] += residual[i];
        const ReferenceEncoder corrected(codec_, sums, kSeed);
        ASSERT_EQ(encoded(codec_, values, scale, &residual, kSeed), corrected.message()) << n << " " << int(input);
        ASSERT_EQ(bits_of(residual), bits_of(corrected.left())) << n << " " << int(input);
      }
    }
  }
}

// As the fused bucket does: tiles whose residual takes the place of the values, at an odd address.
TEST_P(CodecMatrix, TilesInPlace) {
  constexpr size_t n = 10007;
  for (const Input input : kInputs) {
    const std::vector<float> values = numbers(input, n, 3);
    const ReferenceEncoder reference(codec_, values, kSeed);
    std::vector<float> left(n + 1);
    std::copy(values.begin(), values.end(), left.begin() + 1);
    std::vector<std::byte> message(encoded_bytes(codec_, n) + 1, std::byte{0xee});
    Encoder encoder(codec_, n, kSeed, left.data() + 1, Bytes(message).subspan(1));
    for (size_t at = 0; at < n; at += kTileElements) {
      encoder.put(left.data() + 1 + at, std::min(kTileElements, n - at));
    }
    encoder.finish();
    message.erase(message.begin());
    left.erase(left.begin());
    EXPECT_EQ(message, reference.message());
    EXPECT_EQ(bits_of(left), bits_of(reference.left()));
  }
}

// The residual is the difference from what is decoded, so decoding must give the very floats encoding thought of.
TEST_P(CodecMatrix, DecodedIsWhatEncodingSubtracted) {
  for (const size_t n : kSizes) {
    for (const Input input : kInputs) {
      const std::vector<float> values = numbers(input, n, 4);
      std::vector<float> left(n);
      const std::vector<std::byte> message = encoded(codec_, values, 1, &left, kSeed);
      const std::vector<float> result = decoded(codec_, message, n);
      ASSERT_EQ(result.size(), n);
      for (size_t i = 0; i < n; ++i) {
        const float expected = std::isfinite(result[i]) && std::isfinite(values[i]) ? values[i] - result[i] : 0.0f;
        ASSERT_EQ(left[i], expected) << i << " of " << n << ": " << values[i] << " became " << result[i];
      }
      std::vector<float> into = numbers(Input::kBell, n, 5), sums = into;
      for (size_t i = 0; i < n; ++i) sums[i] += result[i];
      ASSERT_TRUE(decode_add(codec_, message, into.data(), n).ok());
      ASSERT_EQ(bits_of(into), bits_of(sums)) << n << " " << int(input);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodecMatrix,
                         ::testing::Combine(::testing::ValuesIn(instruction_sets()),
                                            ::testing::ValuesIn(codec_texts())),
                         [](const auto& row) {
                           return std::string(std::get<0>(row.param)) + "_" + identifier(std::get<1>(row.param));
                         });

}  // namespace
}  // namespace braid::testing

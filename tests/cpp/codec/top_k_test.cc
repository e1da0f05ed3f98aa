// SPDX-License-Identifier: Apache-2.0
// Which elements top-k sends, in the orders that are hard for a selection in one pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "codec/inputs.h"
#include "codec/reference.h"
#include "support/instruction_sets.h"

namespace braid::testing {
namespace {

class TopK : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { ASSERT_TRUE(set_instruction_set(GetParam())); }
  void TearDown() override { set_instruction_set(before_); }

  static void check(const std::vector<float>& values) {
    for (const char* text : {"top_k:0.25", "top_k:0.01", "top_k:0.00001"}) {
      std::vector<float> left(values.size());
      const ReferenceEncoder reference(codec_of(text), values, 0);
      ASSERT_TRUE(encoded(codec_of(text), values, 1, &left) == reference.message()) << text;
      ASSERT_EQ(bits_of(left), bits_of(reference.left())) << text;
    }
  }
  std::string_view before_ = instruction_set_name();
};

constexpr size_t kMany = 40003;  // candidates are thinned out many times

TEST_P(TopK, AnyOrder) {
  std::vector<float> values = numbers(Input::kWide, kMany, 1);
  check(values);
  const auto by_magnitude = [](float a, float b) { return std::fabs(a) < std::fabs(b); };
  std::sort(values.begin(), values.end(), by_magnitude);
  check(values);
  std::reverse(values.begin(), values.end());
  check(values);
}

TEST_P(TopK, OfEqualOnesTheFirst) {
  check(std::vector<float>(kMany, 0.0f));
  check(std::vector<float>(kMany, -2.5f));
  check(numbers(Input::kEqual, kMany, 2));
  std::vector<float> steps(kMany);  // few magnitudes, so that ties are cut everywhere
  for (size_t i = 0; i < kMany; ++i) steps[i] = static_cast<float>(i * 7919 % 13);
  check(steps);
  for (size_t i = 0; i < kMany; ++i) steps[i] = static_cast<float>(i / 5000);
  check(steps);
}

TEST_P(TopK, NansBeforeAllNumbers) {
  check(numbers(Input::kOddOnes, kMany, 3));
  check(numbers(Input::kTiny, kMany, 4));
  std::vector<float> nans(kMany);  // of many payloads, all equal, growing
  for (size_t i = 0; i < kMany; ++i) nans[i] = std::bit_cast<float>(0x7f800001u + static_cast<uint32_t>(i));
  check(nans);
  std::replace_if(
      nans.begin(), nans.begin() + 20000, [](float) { return true; }, std::numeric_limits<float>::infinity());
  check(nans);
}

INSTANTIATE_TEST_SUITE_P(All, TopK, ::testing::ValuesIn(instruction_sets()),
                         [](const auto& set) { return std::string(set.param); });

}  // namespace
}  // namespace braid::testing

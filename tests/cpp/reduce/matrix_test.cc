// SPDX-License-Identifier: Apache-2.0
// Every dtype, operator, number of sources, count and instruction set against the reference, bit for bit, with the
// target apart from the sources and in the place of each.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "reduce/operands.h"
#include "reduce/reference.h"

namespace braid::testing {
namespace {

constexpr std::byte kGuard{0xa5};
constexpr size_t kGuardBytes = 128;

// Sources end where their allocation does, so that a sanitizer sees any read beyond; each begins a different
// number of elements into its allocation, so that no two share their alignment to a vector.
class Operands {
 public:
  Operands(DType dtype, size_t k, size_t count, std::mt19937_64& random) : bytes_(count * size_of(dtype)) {
    for (size_t j = 0; j < k; ++j) {
      const size_t lead = (j + 1) * size_of(dtype);
      auto& operand = operands_.emplace_back(lead + bytes_);
      fill_randomly(dtype, operand.data(), operand.size() / size_of(dtype), random);
      pointers_.push_back(operand.data() + lead);
    }
    originals_ = operands_;
  }

  const std::vector<const std::byte*>& pointers() const { return pointers_; }

  // Checks one call that writes over source `place`, or apart from all where place == k.
  void check(DType dtype, ReduceOp op, size_t count, int divisor, size_t place,
             const std::vector<std::byte>& expected) {
    operands_ = originals_;  // into the same memory
    std::vector<std::byte> apart(size_of(dtype) + bytes_ + kGuardBytes, kGuard);
    std::byte* target = place < pointers_.size() ? operands_[place].data() + (place + 1) * size_of(dtype)
                                                 : apart.data() + size_of(dtype);
    reduce(dtype, op, target, pointers_, count, divisor);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), target))
        << "first difference at element "
        << (std::mismatch(expected.begin(), expected.end(), target).first - expected.begin()) / size_of(dtype);
    if (place == pointers_.size()) {
      EXPECT_TRUE(std::all_of(apart.begin(), apart.begin() + size_of(dtype), is_guard));
      EXPECT_TRUE(std::all_of(apart.end() - kGuardBytes, apart.end(), is_guard));
    } else {  // what lies before the target in its allocation
      EXPECT_TRUE(std::equal(operands_[place].data(), target, originals_[place].data()));
    }
    for (size_t j = 0; j < operands_.size(); ++j) {
      EXPECT_TRUE(j == place || operands_[j] == originals_[j]) << "source " << j << " was changed";
    }
  }

 private:
  static bool is_guard(std::byte byte) { return byte == kGuard; }

  size_t bytes_;
  std::vector<std::vector<std::byte>> operands_, originals_;
  std::vector<const std::byte*> pointers_;
};

class ReduceMatrix : public ::testing::TestWithParam<int> {
 protected:
  void TearDown() override { set_instruction_set(before_); }
  std::string_view before_ = instruction_set_name();
};

TEST_P(ReduceMatrix, AgreesWithTheReference) {
  const auto dtype = static_cast<DType>(GetParam());
  std::mt19937_64 random(static_cast<unsigned>(GetParam()));
  for (int op_index = 0; op_index < kReduceOpCount; ++op_index) {
    const auto op = static_cast<ReduceOp>(op_index);
    if (!is_defined(dtype, op)) continue;
    for (const size_t k : {1, 2, 3, 4, 5, 8, 13}) {
      for (const size_t count : {0, 1, 2, 7, 63, 64, 65, 1000, 4099}) {
        const int divisor = count % 2 == 0 ? static_cast<int>(k) : 1000;  // 1000 is more than an int8 holds
        Operands operands(dtype, k, count, random);
        const auto expected = reference_reduce(dtype, op, operands.pointers(), count, divisor);
        for (const std::string_view set : instruction_sets()) {
          ASSERT_TRUE(set_instruction_set(set));
          for (size_t place = 0; place <= k; ++place) {
            SCOPED_TRACE(std::string(set) + " " + std::string(name_of(op)) + " k=" + std::to_string(k) +
                         " count=" + std::to_string(count) + " place=" + std::to_string(place));
            operands.check(dtype, op, count, divisor, place, expected);
            if (HasFailure()) return;  // one is enough to read
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReduceMatrix, ::testing::Range(0, kDTypeCount),
                         [](const auto& dtype) { return std::string(name_of(static_cast<DType>(dtype.param))); });

}  // namespace
}  // namespace braid::testing

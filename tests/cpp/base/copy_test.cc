// SPDX-License-Identifier: Apache-2.0
#include "base/copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid::testing {
namespace {

using Copy = void (*)(std::byte*, const std::byte*, size_t);

class CopyBytes : public ::testing::TestWithParam<Copy> {};

TEST_P(CopyBytes, CopiesAllAndNothingElse) {
  std::vector<std::byte> source(10'000);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + i / 251);
  for (const size_t bytes : {0, 1, 63, 64, 1000, 1023, 1024, 1025, 1087, 1088, 4096, 9001}) {
    for (const size_t from : {0, 1, 16, 61}) {
      for (const size_t to : {0, 1, 8, 33}) {
        std::vector<std::byte> target(10'000, std::byte{0xee});
        GetParam()(target.data() + to, source.data() + from, bytes);
        for (size_t i = 0; i < target.size(); ++i) {
          const bool inside = i >= to && i < to + bytes;
          ASSERT_EQ(target[i], inside ? source[i - to + from] : std::byte{0xee}) << bytes << " at " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Both, CopyBytes, ::testing::Values(copy_bytes, stream_bytes));

}  // namespace
}  // namespace braid::testing

// SPDX-License-Identifier: Apache-2.0
// Numbers of the environment: a wrong one is refused in one sentence.
#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace braid::testing {
namespace {

constexpr const char* kName = "BRAID_TEST_MARK";

std::string refusal(const char* value, int64_t low, int64_t high) {
  ::setenv(kName, value, 1);
  const auto read = env_integer(kName, low, low, high);
  ::unsetenv(kName);
  return read.ok() ? "" : read.status().message();
}

TEST(Environment, NamesTheValuesThatAreAllowed) {
  EXPECT_EQ(refusal("2", 0, 1), "BRAID_TEST_MARK=2: expected 0 or 1");
  EXPECT_EQ(refusal("x", 1, 16), "BRAID_TEST_MARK=x: expected a whole number from 1 to 16");
  EXPECT_EQ(refusal("1", 0, 1), "");
  EXPECT_EQ(refusal("16", 1, 16), "");
}

}  // namespace
}  // namespace braid::testing

// SPDX-License-Identifier: Apache-2.0
// BRAID_WAIT: how threads wait.
#include <gtest/gtest.h>

#include <cstdlib>

#include "options/options.h"

namespace braid::testing {
namespace {

Result<Options> with_wait(const char* value) {
  ::setenv("BRAID_WAIT", value, 1);
  auto options = options_from_env();
  ::unsetenv("BRAID_WAIT");
  return options;
}

TEST(Wait, IsOneOfFourNames) {
  for (const std::string_view name : kWaitNames) {
    const auto options = with_wait(std::string(name).c_str());
    ASSERT_TRUE(options.ok()) << options.status().message();
    EXPECT_EQ(options.value().wait, name);
  }
  ::unsetenv("BRAID_WAIT");
  EXPECT_EQ(options_from_env().value().wait, "auto");
}

TEST(Wait, OfOtherNamesIsRefused) {
  for (const char* wrong : {"yeild", "Auto", "spin,yield", "0"}) {
    const auto options = with_wait(wrong);
    ASSERT_FALSE(options.ok()) << wrong;
    EXPECT_EQ(options.status().message(),
              "BRAID_WAIT=" + std::string(wrong) + ": expected auto, spin, yield or sleep");
  }
}

}  // namespace
}  // namespace braid::testing

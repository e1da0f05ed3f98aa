// SPDX-License-Identifier: Apache-2.0
// BRAID_PORTS: where a process may listen.
#include <gtest/gtest.h>

#include <cstdlib>

#include "options/options.h"

namespace braid::testing {
namespace {

Result<Options> with_ports(const char* value) {
  ::setenv("BRAID_PORTS", value, 1);
  auto options = options_from_env();
  ::unsetenv("BRAID_PORTS");
  return options;
}

TEST(Ports, ComeFromTheEnvironment) {
  const auto options = with_ports("30000-30100");
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options.value().ports.first, 30000);
  EXPECT_EQ(options.value().ports.last, 30100);
  const auto unset = options_from_env();
  ASSERT_TRUE(unset.ok());
  EXPECT_TRUE(unset.value().ports.any());
}

TEST(Ports, OfAnotherFormAreRefusedByName) {
  const auto options = with_ports("30100-30000");
  ASSERT_FALSE(options.ok());
  EXPECT_EQ(options.status().message(),
            "BRAID_PORTS=30100-30000: expected two ports from 1 to 65535, the smaller first, as in 30000-30100");
}

}  // namespace
}  // namespace braid::testing

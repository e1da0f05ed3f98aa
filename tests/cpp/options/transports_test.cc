// SPDX-License-Identifier: Apache-2.0
// BRAID_TRANSPORTS: which wires a group may use.
#include <gtest/gtest.h>

#include <cstdlib>

#include "options/options.h"

namespace braid::testing {
namespace {

Result<Options> with_transports(const char* value) {
  ::setenv("BRAID_TRANSPORTS", value, 1);
  auto options = options_from_env();
  ::unsetenv("BRAID_TRANSPORTS");
  return options;
}

TEST(Transports, NameWiresInAnyOrder) {
  const auto both = with_transports("tcp,shm");
  ASSERT_TRUE(both.ok()) << both.status().message();
  for (const std::string_view wire : kWireNames) EXPECT_TRUE(allows_wire(both.value(), wire)) << wire;
  const auto one = with_transports("tcp");
  ASSERT_TRUE(one.ok());
  EXPECT_TRUE(allows_wire(one.value(), "tcp"));
  EXPECT_FALSE(allows_wire(one.value(), "shm"));
  EXPECT_FALSE(allows_wire(one.value(), "tc"));
}

TEST(Transports, OfOtherNamesAreRefused) {
  for (const char* wrong : {"tpc", "shm;tcp", "shm,,tcp"}) {
    const auto options = with_transports(wrong);
    ASSERT_FALSE(options.ok()) << wrong;
    EXPECT_EQ(options.status().code(), Code::kInvalidArgument);
    EXPECT_NE(options.status().message().find("some of shm, tcp, with commas"), std::string::npos)
        << options.status().message();
  }
}

TEST(Transports, AreAllByDefault) {
  ::unsetenv("BRAID_TRANSPORTS");
  const auto options = options_from_env();
  ASSERT_TRUE(options.ok());
  for (const std::string_view wire : kWireNames) EXPECT_TRUE(allows_wire(options.value(), wire)) << wire;
}

}  // namespace
}  // namespace braid::testing

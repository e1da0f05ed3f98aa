// SPDX-License-Identifier: Apache-2.0
#include "base/port_range.h"

#include <gtest/gtest.h>

namespace braid::testing {
namespace {

TEST(PortRange, IsReadAsItIsWritten) {
  const auto ports = port_range_from_text("30000-30100");
  ASSERT_TRUE(ports.ok()) << ports.status().message();
  EXPECT_EQ(ports.value().first, 30000);
  EXPECT_EQ(ports.value().last, 30100);
  EXPECT_FALSE(ports.value().any());
  EXPECT_EQ(to_text(ports.value()), "30000-30100");
  const auto one = port_range_from_text("65535");
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ(to_text(one.value()), "65535-65535");
  EXPECT_TRUE(PortRange().any());
}

TEST(PortRange, RefusesOtherTexts) {
  for (const char* wrong : {"", "-", "0", "0-5", "5-", "-5", "30100-30000", "1-65536", "30000:30100", "1-2-3",
                            "a-b", "30000 - 30100", "+1-2", "99999999999"}) {
    const auto ports = port_range_from_text(wrong);
    ASSERT_FALSE(ports.ok()) << wrong;
    EXPECT_EQ(ports.status().code(), Code::kInvalidArgument);
    EXPECT_NE(ports.status().message().find("as in 30000-30100"), std::string::npos) << ports.status().message();
  }
}

}  // namespace
}  // namespace braid::testing

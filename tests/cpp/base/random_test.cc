// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(NonceTest, TextFormRoundTrips) {
  const Nonce nonce = Nonce::random().value();
  EXPECT_NE(nonce, Nonce::random().value());
  EXPECT_EQ(Nonce::parse(nonce.text()), nonce);
  EXPECT_EQ((Nonce{1, 0xabcdef}.text()), "00000000000000010000000000abcdef");
  EXPECT_FALSE(Nonce::parse(nonce.text() + "0"));
  EXPECT_FALSE(Nonce::parse(nonce.text().replace(7, 1, "x")));
}

}  // namespace
}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace braid {
namespace {

std::string hex(ConstBytes bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte b : bytes) {
    text += kDigits[std::to_integer<int>(b) >> 4];
    text += kDigits[std::to_integer<int>(b) & 15];
  }
  return text;
}

std::string sha(const std::string& text) { return hex(sha256(bytes_of(text))); }
std::string hmac(const std::string& key, const std::string& text) {
  return hex(hmac_sha256(bytes_of(key), bytes_of(text)));
}

TEST(Sha256Test, VectorsOfFips180) {
  EXPECT_EQ(sha(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(
      sha("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnop"
          "qrstnopqrstu"),
      "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(sha(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, PiecesGiveTheHashOfTheWhole) {
  std::string text;
  for (int length = 0; length <= 200; ++length, text += static_cast<char>('a' + length % 26)) {
    for (const size_t cut : {size_t{0}, text.size() / 3, text.size()}) {
      Sha256 hash;
      hash.update(bytes_of(text.substr(0, cut)));
      hash.update(bytes_of(text.substr(cut)));
      ASSERT_EQ(hex(hash.finish()), sha(text)) << length << " cut at " << cut;
    }
  }
}

TEST(HmacTest, VectorsOfRfc4231) {
  EXPECT_EQ(hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(HmacTest, ComparisonSeesEveryByte) {
  const Digest a = sha256(bytes_of("x"));
  EXPECT_TRUE(equal_in_constant_time(a, a));
  EXPECT_FALSE(equal_in_constant_time(a, ConstBytes(a).first(31)));
  for (size_t i = 0; i < a.size(); ++i) {
    Digest b = a;
    b[i] ^= std::byte{1};
    EXPECT_FALSE(equal_in_constant_time(a, b)) << i;
  }
}

TEST(RandomTest, FillsAndDiffers) {
  Digest a{}, b{};
  ASSERT_TRUE(fill_random(a).ok());
  ASSERT_TRUE(fill_random(b).ok());
  EXPECT_NE(a, Digest{});
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace braid

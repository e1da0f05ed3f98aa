// SPDX-License-Identifier: Apache-2.0
// What the calling thread does with subnormal floats (torch.set_flush_denormal) changes no bit.
#include <gtest/gtest.h>

#include "base/float_environment.h"
#include "codec/inputs.h"

namespace braid::testing {
namespace {

#if defined(__x86_64__)

// Flushes for as long as it exists, and rounds toward zero.
class Flushing {
 public:
  Flushing() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0xe040u); }
  ~Flushing() { _mm_setcsr(before_); }

 private:
  const unsigned before_;
};

struct Coded {
  std::vector<std::byte> message;
  std::vector<float> residual, decoded, added;

  bool operator==(const Coded& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    return message == other.message && same(residual, other.residual) && same(decoded, other.decoded) &&
           same(added, other.added);
  }
};

Coded coded(const Codec& codec, const std::vector<float>& values, bool flushing) {
  std::optional<Flushing> settings;
  if (flushing) settings.emplace();
  Coded made{std::vector<std::byte>(encoded_bytes(codec, values.size())), values, values, values};
  encode(codec, values.data(), values.size(), 0.25f, made.residual.data(), 3, made.message);
  EXPECT_TRUE(decode(codec, made.message, made.decoded.data(), values.size()).ok());
  EXPECT_TRUE(decode_add(codec, made.message, made.added.data(), values.size()).ok());
  return made;
}

TEST(Flush, ChangesNoBit) {
  for (const std::string& text : codec_texts()) {
    for (const float size : {1.0f, 0x1p-98f, 1e-37f, 1e-40f}) {
      std::vector<float> values = numbers(Input::kBell, 5000, 1);
      for (float& value : values) value *= size;
      EXPECT_TRUE(coded(codec_of(text), values, true) == coded(codec_of(text), values, false))
          << text << " " << size;
    }
  }
}

TEST(Flush, IsAsItWasAfterwards) {
  const Flushing settings;
  const unsigned flushing = _mm_getcsr();
  {
    const PlainFloats plain;
    EXPECT_NE(_mm_getcsr(), flushing);
  }
  EXPECT_EQ(_mm_getcsr(), flushing);
}

#endif

}  // namespace
}  // namespace braid::testing

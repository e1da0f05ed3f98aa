// SPDX-License-Identifier: Apache-2.0
// Messages that are not what the receiver expects: refused, and nothing written.
#include <gtest/gtest.h>

#include "codec/inputs.h"

namespace braid::testing {
namespace {

constexpr size_t kElements = 300;

class Malformed : public ::testing::TestWithParam<std::string> {
 protected:
  // In memory of its own size, for the address sanitizer to guard.
  static void expect_refused(const Codec& codec, const std::vector<std::byte>& message, size_t n,
                             const std::string& why) {
    const std::vector<float> before = numbers(Input::kBell, n, 5);
    for (const bool add : {false, true}) {
      std::vector<float> out = before;
      const Status status =
          add ? decode_add(codec, message, out.data(), n) : decode(codec, message, out.data(), n);
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << why;
      EXPECT_NE(status.message().find(to_text(codec)), std::string::npos) << status.message();
      EXPECT_EQ(out, before) << why;
    }
  }

  const Codec codec_ = codec_of(GetParam());
  const std::vector<std::byte> good_ = encoded(codec_, numbers(Input::kBell, kElements, 1), 1, nullptr, 6);
};

TEST_P(Malformed, EveryByteOfTheHeader) {
  ASSERT_EQ(decoded(codec_, good_, kElements).size(), kElements);
  for (size_t at = 0; at < 16; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<std::byte> message = good_;
      message[at] ^= static_cast<std::byte>(1 << bit);
      if (codec_.kind == CodecKind::kRandomK && at >= 12) {  // any seed is one
        EXPECT_EQ(decoded(codec_, message, kElements).size(), kElements);
      } else {
        expect_refused(codec_, message, kElements, "byte " + std::to_string(at));
      }
    }
  }
}

TEST_P(Malformed, AnySizeButItsOwn) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, good_.size() - 16, good_.size() - 1,
                             good_.size() + 1, good_.size() + 16, 2 * good_.size()}) {
    std::vector<std::byte> message = good_;
    message.resize(bytes);
    message.shrink_to_fit();
    expect_refused(codec_, message, kElements, std::to_string(bytes) + " bytes");
  }
  for (const size_t n : {size_t{0}, kElements - 1, kElements + 1, size_t{100000}}) {
    expect_refused(codec_, good_, n, std::to_string(n) + " elements");
  }
}

TEST_P(Malformed, AnotherCodecs) {
  for (const std::string& text : codec_texts()) {
    if (text != GetParam()) expect_refused(codec_of(text), good_, kElements, "read as " + text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Malformed, ::testing::ValuesIn(codec_texts()),
                         [](const auto& text) { return identifier(text.param); });

class MalformedPositions : public Malformed {
 protected:
  static constexpr size_t kEntries = 3;
  std::vector<std::byte> with_positions(const std::vector<uint32_t>& positions) const {
    std::vector<std::byte> message = good_;
    std::memcpy(message.data() + 16, positions.data(), kEntries * sizeof(uint32_t));
    return message;
  }
};

TEST_P(MalformedPositions, OutOfOrderOrRange) {
  EXPECT_EQ(decoded(codec_, with_positions({0, 1, 299}), kElements).size(), kElements);
  for (const std::vector<uint32_t>& positions : {std::vector<uint32_t>{0, 0, 1},
                                                 {5, 4, 6},
                                                 {1, 2, 2},
                                                 {0, 1, 300},
                                                 {0, 1, 0xffffffff},
                                                 {0x80000000, 1, 2}}) {
    expect_refused(codec_, with_positions(positions), kElements, std::to_string(positions[2]));
  }
}

INSTANTIATE_TEST_SUITE_P(TopK, MalformedPositions, ::testing::Values("top_k:0.01"));

}  // namespace
}  // namespace braid::testing

// SPDX-License-Identifier: Apache-2.0
// Names of codecs and sizes of messages.
#include <gtest/gtest.h>

#include "codec/inputs.h"

namespace braid::testing {
namespace {

TEST(CodecText, ComesThroughUnchanged) {
  for (int kind = 0; kind < kCodecKindCount; ++kind) {
    const auto codec_kind = static_cast<CodecKind>(kind);
    for (const uint32_t every : {kLeastEvery, 7u, 1000u, 99999u, kMostEvery}) {
      const Codec codec{codec_kind, traits(codec_kind).is_sparse ? every : 0};
      const auto back = codec_from_text(to_text(codec));
      ASSERT_TRUE(back.ok()) << to_text(codec);
      EXPECT_EQ(back.value(), codec) << to_text(codec);
    }
  }
  EXPECT_EQ(codec_of("top_k:0.001"), (Codec{CodecKind::kTopK, 1000}));
  EXPECT_EQ(codec_of("random_k:0.3e-1"), (Codec{CodecKind::kRandomK, 33}));
}

TEST(CodecText, SaysWhatIsWrong) {
  const auto expect_wrong = [](const char* text, const char* part_of_message) {
    const auto codec = codec_from_text(text);
    ASSERT_FALSE(codec.ok()) << text;
    EXPECT_EQ(codec.status().code(), Code::kInvalidArgument) << text;
    EXPECT_NE(codec.status().message().find(part_of_message), std::string::npos) << codec.status().message();
    EXPECT_NE(codec.status().message().find('"' + std::string(text) + '"'), std::string::npos) << text;
  };
  for (const char* text : {"", ":", "fp17", "FP16", " fp16", "int8 ", "topk:0.1", "random"}) {
    expect_wrong(text, "fp16, bf16, fp8_e4m3, fp8_e5m2, int8, int4, qsgd, sign, top_k:PART, random_k:PART");
  }
  for (const char* text : {"fp16:", "int8:0.5", "sign:1"}) expect_wrong(text, "takes no part");
  for (const char* text : {"top_k", "random_k"}) expect_wrong(text, "say which part is sent");
  for (const char* text :
       {"top_k:", "top_k:x", "top_k:0.1x", "top_k:0.1:0.1", "top_k: 0.1", "top_k:0.26", "top_k:1", "top_k:0",
        "top_k:-0.1", "top_k:nan", "top_k:inf", "random_k:1e-7", "random_k:1e999"}) {
    expect_wrong(text, "must be a number from");
  }
}

TEST(CodecText, SizesOfMessages) {
  const auto bytes = [](const char* text, size_t n) { return encoded_bytes(codec_of(text), n); };
  for (const std::string& text : codec_texts()) EXPECT_EQ(bytes(text.c_str(), 0), 16u) << text;
  EXPECT_EQ(bytes("fp16", 1), 16u + 16);
  EXPECT_EQ(bytes("bf16", 9), 16u + 32);
  EXPECT_EQ(bytes("int8", 256), 16u + 16 + 256);
  EXPECT_EQ(bytes("fp8_e4m3", 257), 16u + 16 + 512);
  EXPECT_EQ(bytes("qsgd", 1025), 16u + 32 + 5 * 256);
  EXPECT_EQ(bytes("int4", 257), 16u + 16 + 256);
  EXPECT_EQ(bytes("sign", 1025), 16u + 16 + 256);
  EXPECT_EQ(bytes("top_k:0.01", 1000), 16u + 48 + 48);
  EXPECT_EQ(bytes("random_k:0.01", 1001), 16u + 48);
  EXPECT_EQ(bytes("fp16", kMostEncodedElements), 16 + 2 * kMostEncodedElements);
  EXPECT_NEAR(ratio(codec_of("int4")), 0.5 / 4 + 1.0 / 256, 1e-5);
  EXPECT_NEAR(ratio(codec_of("sign")), 1.0 / 32 + 1.0 / 1024, 1e-5);
}

}  // namespace
}  // namespace braid::testing

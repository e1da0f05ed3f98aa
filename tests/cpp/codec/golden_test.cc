// SPDX-License-Identifier: Apache-2.0
// The bytes of small messages, so that a change of the wire is seen in review. BRAID_UPDATE_GOLDEN=1 writes them
// anew.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/env.h"
#include "codec/inputs.h"

namespace braid::testing {
namespace {

// As hexdump -C: lines like the one before are a star.
std::string dump(const std::vector<std::byte>& bytes) {
  std::string text, last;
  for (size_t at = 0; at < bytes.size(); at += 16) {
    std::string line;
    for (size_t i = at; i < at + 16; ++i) {
      char byte[4];
      std::snprintf(byte, sizeof byte, " %02x", std::to_integer<int>(bytes[i]));
      line += byte;
    }
    char offset[24];
    std::snprintf(offset, sizeof offset, "%04zx ", at);
    if (line != last) {
      text += offset + line + "\n";
    } else if (!text.ends_with("*\n")) {
      text += "*\n";
    }
    last = line;
  }
  return text;
}

std::string row(const char* name, const std::vector<float>& values) {
  std::string text = name;
  for (const float value : values) {
    char number[24];
    std::snprintf(number, sizeof number, " %.7g", static_cast<double>(value));
    text += number;
  }
  return text + "\n";
}

class CodecGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(CodecGolden, Bytes) {
  const Codec codec = codec_of(GetParam());
  std::vector<float> values;
  for (int i = 0; i < 20; ++i)
    values.push_back(std::ldexp(static_cast<float>((i * 37 + 11) % 41 - 20), i % 7 - 5));
  std::vector<float> residual(values.size());
  const std::vector<std::byte> message = encoded(codec, values, 1, &residual, 42);
  const std::string drawn = to_text(codec) + ", seed 42\n" + row("values ", values) + dump(message) +
                            row("decoded", decoded(codec, message, values.size())) + row("left   ", residual);
  const std::string path = std::string(BRAID_GOLDEN_DIR) + "/" + identifier(GetParam()) + ".txt";
  if (env_string("BRAID_UPDATE_GOLDEN")) std::ofstream(path) << drawn;
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(drawn, golden.str()) << path;
}

INSTANTIATE_TEST_SUITE_P(All, CodecGolden,
                         ::testing::Values("fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "qsgd", "sign",
                                           "top_k:0.25", "random_k:0.25"),
                         [](const auto& text) { return identifier(text.param); });

}  // namespace
}  // namespace braid::testing

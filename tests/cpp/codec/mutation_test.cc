// SPDX-License-Identifier: Apache-2.0
// The fuzzer's target without a fuzzer: good messages with bytes changed, cut off and appended, and noise.
#include <gtest/gtest.h>

#include "codec/inputs.h"
#include "fuzz/targets.h"

namespace braid::testing {
namespace {

TEST(CodecMutation, DecodersHoldOut) {
  std::mt19937 random(1);
  const auto below = [&](size_t limit) { return static_cast<size_t>(random()) % limit; };
  for (int round = 0; round < 100000; ++round) {
    std::vector<uint8_t> input(3);
    const size_t n = below(round % 100 == 0 ? 5000 : 60);
    input[0] = static_cast<uint8_t>(random());
    input[1] = static_cast<uint8_t>(n);
    input[2] = static_cast<uint8_t>(n >> 8);
    const auto kind = static_cast<CodecKind>(input[0] % kCodecKindCount);
    const Codec codec{kind, traits(kind).is_sparse ? 4 + input[0] % 16u : 0};
    if (below(4) == 0) {
      input.resize(3 + below(200));
      for (size_t i = 3; i < input.size(); ++i) input[i] = static_cast<uint8_t>(random());
    } else {
      std::vector<float> values(n);
      for (float& value : values) value = static_cast<float>(below(1000)) - 500;
      for (const std::byte byte : encoded(codec, values, 1, nullptr, input[1])) {
        input.push_back(std::to_integer<uint8_t>(byte));
      }
      for (size_t changes = below(4); changes > 0; --changes) {
        input[3 + below(below(2) == 0 ? 16 : input.size() - 3)] = static_cast<uint8_t>(random());
      }
      if (below(8) == 0) input.resize(3 + below(input.size()));
    }
    ASSERT_NO_THROW(fuzz::codec_target(input)) << "round " << round;
  }
}

}  // namespace
}  // namespace braid::testing

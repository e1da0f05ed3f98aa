// SPDX-License-Identifier: Apache-2.0
// The kernels' own text, run on the host, against the codecs: the same bytes, the same residual bits.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/half.h"
#include "codec/codec.h"
#include "cuda/host_device.h"
#include "cuda/launch.h"

namespace braid::cuda {
namespace {

constexpr const char* kCodecs[] = {"fp16", "bf16", "fp8_e4m3", "fp8_e5m2",  "int8",
                                   "int4", "qsgd", "sign",     "top_k:0.1", "random_k:0.1"};

Codec codec_of(const char* text) { return codec_from_text(text).value(); }

// Memory that begins at a multiple of 16, or so many bytes after one; with a margin that must stay as it is.
class Buffer {
 public:
  explicit Buffer(size_t bytes, size_t shift = 0) : words_((bytes + shift + 2 * kMargin) / 16 + 1), bytes_(bytes) {
    std::memset(words_.data(), 0xa5, words_.size() * 16);
    at_ = reinterpret_cast<std::byte*>(words_.data()) + kMargin + shift;
  }
  template <class T = std::byte>
  T* as() const {
    return reinterpret_cast<T*>(at_);
  }
  Bytes bytes() const { return {at_, bytes_}; }
  bool margins_are_whole() const {
    for (size_t i = 1; i <= 16; ++i) {
      if (at_[-static_cast<ptrdiff_t>(i)] != std::byte{0xa5} || at_[bytes_ + i - 1] != std::byte{0xa5})
        return false;
    }
    return true;
  }

 private:
  static constexpr size_t kMargin = 64;
  struct alignas(16) Word {
    char at[16];
  };
  std::vector<Word> words_;
  std::byte* at_;
  size_t bytes_;
};

enum class Values { kNormal, kTies, kOdd, kZeros };

float draw(std::mt19937& random, Values values) {
  static constexpr float kOddOnes[] = {0.0f,      -0.0f,  INFINITY, -INFINITY, NAN,       -NAN,     1e-40f,
                                       -1e-45f,   3e38f,  65519.0f, 65520.0f,  1e-7f,     6e-8f,    0x1p-100f,
                                       0x1p-101f, 448.0f, -464.0f,  57344.0f,  -61440.0f, 0x1p-14f, 1e-30f};
  std::normal_distribution<float> normal;
  switch (values) {
    case Values::kNormal: return normal(random);
    case Values::kTies: return static_cast<float>(static_cast<int>(random() % 5) - 2);
    case Values::kOdd: return random() % 40 == 0 ? kOddOnes[random() % std::size(kOddOnes)] : normal(random);
    case Values::kZeros: return 0;
  }
  return 0;
}

// Tensors of `elements` in all, of mixed dtypes and lengths at mixed addresses; and what they hold, as floats.
struct Tensors {
  Tensors(size_t elements, uint32_t seed, Values kind, bool many = true) {
    std::mt19937 random(seed);
    while (floats.size() < elements) {
      const size_t rest = elements - floats.size();
      const size_t length =
          many ? std::min<size_t>(rest, random() % 3 == 0 ? random() % 40 : random() % 5000) : rest;
      const DType dtype =
          many ? std::array{DType::kFloat32, DType::kFloat16, DType::kBFloat16}[random() % 3] : DType::kFloat32;
      buffers.emplace_back(length * size_of(dtype), many ? size_of(dtype) * (random() % 2 * (random() % 8)) : 0);
      runs.push_back({buffers.back().as(), length, dtype});
      for (size_t i = 0; i < length; ++i) {
        float value = draw(random, kind);
        if (dtype == DType::kFloat16) {
          const uint16_t half = float16_from_float(value);
          buffers.back().as<uint16_t>()[i] = half;
          value = float_from_float16(half);
        } else if (dtype == DType::kBFloat16) {
          const uint16_t half = bfloat16_from_float(value);
          buffers.back().as<uint16_t>()[i] = half;
          value = float_from_bfloat16(half);
        } else {
          buffers.back().as<float>()[i] = value;
        }
        floats.push_back(value);
      }
    }
  }
  Table table() {
    Table made = Table::of(runs).value();
    if (made.is_long()) {
      far.assign(made.rows().begin(), made.rows().end());
      made.set_far_rows(far.data());
    }
    return made;
  }
  float at(size_t run, size_t i) const {
    if (runs[run].dtype == DType::kFloat32) return buffers[run].as<float>()[i];
    const uint16_t half = buffers[run].as<uint16_t>()[i];
    return runs[run].dtype == DType::kFloat16 ? float_from_float16(half) : float_from_bfloat16(half);
  }
  bool margins_are_whole() const {
    return std::all_of(buffers.begin(), buffers.end(), [](const Buffer& b) { return b.margins_are_whole(); });
  }

  std::vector<Buffer> buffers;
  std::vector<DeviceRun> runs;
  std::vector<float> floats;
  std::vector<std::byte> far;
};

float rounded(float value, DType dtype) {
  if (dtype == DType::kFloat16) return float_from_float16(float16_from_float(value));
  if (dtype == DType::kBFloat16) return float_from_bfloat16(bfloat16_from_float(value));
  return value;
}
// The payload of a NaN is nobody's business once it is decoded.
uint32_t bits_of_any(float value) { return std::isnan(value) ? 0x7fc00000u : std::bit_cast<uint32_t>(value); }

// Encodes on both sides and compares all there is; then decodes, both ways, into tensors.
void compare(const char* text, size_t elements, uint32_t seed, Values kind, bool many, bool has_residual,
             float scale, size_t residual_shift = 0) {
  SCOPED_TRACE(std::string(text) + ", elements " + std::to_string(elements) + ", seed " + std::to_string(seed));
  const Codec codec = codec_of(text);
  Tensors tensors(elements, seed, kind, many);
  HostDevice device;
  const size_t bytes = encoded_bytes(codec, elements);
  std::vector<float> residual(has_residual ? elements : 0);
  std::mt19937 random(seed + 1);
  for (float& r : residual) r = draw(random, kind) / 8;
  Buffer device_residual(residual.size() * 4, residual_shift), message(bytes);
  std::copy(residual.begin(), residual.end(), device_residual.as<float>());
  std::vector<std::byte> expected(bytes, std::byte{0x5a});
  braid::encode(codec, tensors.floats.data(), elements, scale, has_residual ? residual.data() : nullptr, seed,
                expected);

  const Table table = tensors.table();
  Buffer scratch(encode_scratch_bytes(codec, elements, has_residual));
  EncodeWork work{.scale = scale, .seed = seed, .message = message.as(), .message_bytes = bytes};
  work.scratch = scratch.as();
  if (has_residual) work.residual = device_residual.as<float>();
  const Status encoded = encode(device, codec, table, work, 0);
  ASSERT_TRUE(encoded.ok()) << encoded.message();
  ASSERT_TRUE(std::equal(expected.begin(), expected.end(), message.as()));
  ASSERT_TRUE(message.margins_are_whole() && scratch.margins_are_whole() && device_residual.margins_are_whole());
  ASSERT_TRUE(std::ranges::equal(std::as_bytes(std::span(residual)), device_residual.bytes()));

  std::vector<float> decoded(elements);
  ASSERT_TRUE(braid::decode(codec, expected, decoded.data(), elements).ok());
  for (const bool add : {false, true}) {
    uint32_t flag = 7;
    Tensors into(elements, seed + 2, Values::kNormal, many);
    const DecodeWork decoding{message.as(), bytes, 0.5f, add, &flag};
    const Status status = decode(device, codec, into.table(), decoding, 0);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(flag, 0u);
    ASSERT_TRUE(into.margins_are_whole());
    for (size_t run = 0, i = 0; run < into.runs.size(); ++run) {
      for (size_t k = 0; k < into.runs[run].elements; ++k, ++i) {
        const float value = decoded[i] * 0.5f;
        // A sparse message adds nothing where it has nothing; -0 + 0 would be 0, but none is drawn.
        const float expected_value = rounded(add ? into.floats[i] + value : value, into.runs[run].dtype);
        ASSERT_EQ(bits_of_any(into.at(run, k)), bits_of_any(expected_value)) << "element " << i << ", add " << add;
      }
    }
  }
}

class EveryCodec : public testing::TestWithParam<const char*> {};

TEST_P(EveryCodec, GivesTheBytesOfTheHostForMixedTensors) {
  uint32_t seed = 1;
  for (const size_t elements : {0, 1, 2, 255, 256, 257, 511, 1023, 1025, 3000, 9999}) {
    for (const Values kind : {Values::kNormal, Values::kOdd}) {
      seed += 2;
      compare(GetParam(), elements, seed, kind, true, elements % 2 == 0, 1.0f);
      compare(GetParam(), elements, seed + 1, kind, true, elements % 2 != 0, 1.0f / 3);
    }
  }
}

TEST_P(EveryCodec, GivesTheBytesOfTheHostForOneTensorInSeveralTurns) {
  compare(GetParam(), 150001, 5, Values::kNormal, false, true, 0.25f);
  compare(GetParam(), 131072, 6, Values::kTies, false, false, 1.0f);
}

TEST_P(EveryCodec, TakesAResidualAtAnyFloat) {
  compare(GetParam(), 5000, 8, Values::kNormal, false, true, 1.0f, 4);
}

TEST_P(EveryCodec, TakesEqualAndZeroValues) {
  compare(GetParam(), 5000, 9, Values::kTies, true, true, 1.0f);
  compare(GetParam(), 5000, 10, Values::kZeros, true, false, 1.0f);
}

TEST_P(EveryCodec, IsNotSpoiledByPaddingWhereTheScaleIsInfinite) {
  compare(GetParam(), 700, 11, Values::kNormal, false, true, INFINITY);
}

TEST_P(EveryCodec, LeavesTensorsAloneForAnothersMessage) {
  const Codec codec = codec_of(GetParam());
  constexpr size_t kElements = 2000;
  Tensors tensors(kElements, 3, Values::kNormal);
  HostDevice device;
  Buffer message(encoded_bytes(codec, kElements));
  braid::encode(codec, tensors.floats.data(), kElements, 1, nullptr, 4, message.bytes());
  for (const size_t wrong : {0, 3, 4, 8}) {
    message.as<uint8_t>()[wrong] ^= 1;
    uint32_t flag = 0;
    const Status status =
        decode(device, codec, tensors.table(), {message.as(), message.bytes().size(), 1, false, &flag}, 0);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(flag, 1u) << wrong;
    message.as<uint8_t>()[wrong] ^= 1;
  }
  for (size_t run = 0, i = 0; run < tensors.runs.size(); ++run) {
    for (size_t k = 0; k < tensors.runs[run].elements; ++k, ++i) ASSERT_EQ(tensors.at(run, k), tensors.floats[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryCodec, testing::ValuesIn(kCodecs), [](const auto& tested) {
  std::string name = tested.param;
  return name.substr(0, name.find(':'));
});

TEST(TopK, TakesOnlyPositionsInOrderAndRange) {
  const Codec codec = codec_of("top_k:0.25");
  constexpr size_t kElements = 64;
  Tensors tensors(kElements, 3, Values::kNormal, false);
  HostDevice device;
  Buffer message(encoded_bytes(codec, kElements));
  for (const uint32_t wrong : {0u, 64u, ~0u}) {
    braid::encode(codec, tensors.floats.data(), kElements, 1, nullptr, 4, message.bytes());
    message.as<uint32_t>()[4 + 7] = wrong;
    uint32_t flag = 0;
    ASSERT_TRUE(
        decode(device, codec, tensors.table(), {message.as(), message.bytes().size(), 1, true, &flag}, 0).ok());
    EXPECT_EQ(flag, 1u);
    EXPECT_EQ(0, std::memcmp(tensors.buffers[0].as(), tensors.floats.data(), kElements * 4));
  }
}

TEST(TopK, FindsThresholdsAmongTinyAndEqualMagnitudes) {
  HostDevice device;
  const Codec codec = codec_of("top_k:0.2");
  for (const uint32_t spread : {1u, 3u, 900u, 1u << 14, 1u << 22}) {
    constexpr size_t kElements = 3001;
    Tensors tensors(kElements, 1, Values::kZeros, false);
    std::mt19937 random(spread);
    for (size_t i = 0; i < kElements; ++i) {
      tensors.floats[i] = std::bit_cast<float>(
          static_cast<uint32_t>(random() % spread | (random() & 1) << 31));  // subnormal numbers
    }
    std::memcpy(tensors.buffers[0].as(), tensors.floats.data(), kElements * 4);
    Buffer message(encoded_bytes(codec, kElements)), scratch(encode_scratch_bytes(codec, kElements, false));
    EncodeWork work{.message = message.as(), .message_bytes = message.bytes().size(), .scratch = scratch.as()};
    ASSERT_TRUE(encode(device, codec, tensors.table(), work, 0).ok());
    std::vector<std::byte> expected(message.bytes().size());
    braid::encode(codec, tensors.floats.data(), kElements, 1, nullptr, 0, expected);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), message.as())) << spread;
  }
}

TEST(Pack, BringsTensorsTogetherAndPutsThemBack) {
  for (const size_t elements : {0, 1, 777, 4096, 300000}) {
    Tensors tensors(elements, 17, Values::kNormal), target(elements, 17, Values::kZeros);
    HostDevice device;
    Buffer flat(elements * 4, 4);
    ASSERT_TRUE(pack(device, tensors.table(), 0.3f, flat.as<float>(), 0).ok());
    for (size_t i = 0; i < elements; ++i) ASSERT_EQ(flat.as<float>()[i], tensors.floats[i] * 0.3f) << i;
    for (const bool add : {false, true}) {
      ASSERT_TRUE(unpack(device, flat.as<float>(), target.table(), 0.7f, add, 0).ok());
      ASSERT_TRUE(flat.margins_are_whole() && target.margins_are_whole());
      for (size_t run = 0, i = 0; run < target.runs.size(); ++run) {
        for (size_t k = 0; k < target.runs[run].elements; ++k, ++i) {
          const DType dtype = target.runs[run].dtype;
          const float value = flat.as<float>()[i] * 0.7f;
          ASSERT_EQ(target.at(run, k), rounded(add ? rounded(value, dtype) + value : value, dtype)) << i;
        }
      }
    }
  }
}

TEST(Table, SaysWhatItCannotTake) {
  float floats[4] = {};
  const auto message_of = [](DeviceRun run) { return Table::of({&run, 1}).status().message(); };
  EXPECT_EQ(message_of({floats, 1, DType::kInt32}), "tensor 0 is of int32, not of float32, float16 or bfloat16");
  EXPECT_EQ(message_of({reinterpret_cast<char*>(floats) + 1, 1, DType::kFloat16}),
            "tensor 0 lies at no multiple of its elements' size");
  EXPECT_EQ(message_of({nullptr, 1, DType::kFloat32}), "tensor 0 has elements, but no memory");
  EXPECT_TRUE(Table::of({}).ok());

  std::vector<DeviceRun> many(kInlineRows + 1, DeviceRun{floats, 1, DType::kFloat32});
  Table table = Table::of(many).value();
  HostDevice device;
  EXPECT_EQ(pack(device, table, 1, floats, 0).message(),
            "a table of 129 tensors must be copied to the device before it is used");
  EXPECT_TRUE(device.launched.empty());
}

TEST(Launch, SaysWhatIsWrongWithMemory) {
  HostDevice device;
  const Codec codec = codec_of("int8");
  Tensors tensors(100, 1, Values::kNormal, false);
  Buffer message(encoded_bytes(codec, 100));
  const auto text_of = [&](void* at, size_t bytes, float* residual) {
    EncodeWork work{.residual = residual, .message = at, .message_bytes = bytes};
    return encode(device, codec, tensors.table(), work, 0).message();
  };
  EXPECT_EQ(text_of(message.as(), 8, nullptr), "int8 message of 100 elements: has 8 bytes instead of 288");
  EXPECT_EQ(text_of(message.as() + 4, 288, nullptr), "int8 message of 100 elements: lies at no multiple of 16");
  EXPECT_EQ(text_of(message.as(), 288, reinterpret_cast<float*>(message.as() + 2)),
            "the residual lies at no multiple of 4");
  EXPECT_EQ(decode(device, codec, tensors.table(), {message.as(), 288, 1, false, nullptr}, 0).message(),
            "decoding needs a flag to raise");
  const Codec top_k = codec_of("top_k:0.25");
  EncodeWork work{.message = message.as(), .message_bytes = encoded_bytes(top_k, 100)};
  EXPECT_EQ(encode(device, top_k, tensors.table(), work, 0).message(),
            "top_k needs scratch memory at a multiple of 16");
  EXPECT_TRUE(device.launched.empty());
}

}  // namespace
}  // namespace braid::cuda

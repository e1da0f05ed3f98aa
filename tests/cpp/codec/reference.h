// SPDX-License-Identifier: Apache-2.0
// The codecs as they are defined: the formulas, one element after the other, and top-k by sorting.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "codec/formulas.h"
#include "codec/layout.h"

namespace braid::testing {

class ReferenceEncoder {
 public:
  ReferenceEncoder(const Codec& codec, std::vector<float> sums, uint32_t seed)
      : codec_(codec),
        layout_(message_layout(codec, sums.size())),
        sums_(std::move(sums)),
        seed_(seed),
        message_(layout_.bytes),
        left_(sums_.size()) {
    const MessageHeader header = header_for(codec, sums_.size(), seed);
    std::memcpy(message_.data(), &header, sizeof header);
    switch (codec.kind) {
      case CodecKind::kFloat16:
        halves([](float value) { return formula::float16_of(value); },
               [](uint16_t half) { return formula::float_of_float16(half); });
        break;
      case CodecKind::kBFloat16:
        halves([](float value) { return formula::bfloat16_of(value); },
               [](uint16_t half) { return formula::float_of_bfloat16(half); });
        break;
      case CodecKind::kSign: signs(); break;
      case CodecKind::kTopK:
      case CodecKind::kRandomK: some(); break;
      default: blocks(); break;
    }
  }
  const std::vector<std::byte>& message() const { return message_; }
  const std::vector<float>& left() const { return left_; }

 private:
  template <class T>
  void put(size_t plane, size_t index, T value) {
    std::memcpy(message_.data() + plane + index * sizeof(T), &value, sizeof(T));
  }

  template <class Narrow, class Widen>
  void halves(Narrow narrow, Widen widen) {
    for (size_t i = 0; i < sums_.size(); ++i) {
      const uint16_t half = narrow(sums_[i]);
      put(layout_.data_at, i, half);
      left_[i] = formula::left_of(sums_[i], widen(half));
    }
  }

  // The code of one element, and what it decodes to.
  std::pair<int, float> coded(size_t i, const formula::Scale& scale) const {
    const auto scaled = [&](int code) { return std::pair(code, formula::value_of(code, scale.scale)); };
    const float value = sums_[i];
    switch (codec_.kind) {
      case CodecKind::kFloat8E4M3: return float8<formula::E4M3>(value, scale);
      case CodecKind::kFloat8E5M2: return float8<formula::E5M2>(value, scale);
      case CodecKind::kQsgd: {
        if (scale.inverse == 0) return scaled(0);
        const float dither = formula::uniform(seed_, static_cast<uint32_t>(i));
        return scaled(formula::stochastic_code_of(value, scale.inverse, dither));
      }
      default: return scaled(scale.inverse == 0 ? 0 : formula::code_of(value, scale.inverse));
    }
  }
  template <class Format>
  static std::pair<int, float> float8(float value, const formula::Scale& scale) {
    const uint8_t code = scale.inverse == 0 ? uint8_t{0} : formula::float8_of<Format>(value * scale.inverse);
    return {code, formula::float_of_float8<Format>(code) * scale.scale};
  }
  float most() const {
    switch (codec_.kind) {
      case CodecKind::kFloat8E4M3: return formula::E4M3::kLargest;
      case CodecKind::kFloat8E5M2: return formula::E5M2::kLargest;
      case CodecKind::kInt4: return formula::kMostInt4;
      default: return formula::kMostInt8;
    }
  }

  void blocks() {
    constexpr size_t kBlock = formula::kBlock, kHalf = kBlock / 2;
    for (size_t block = 0; block < layout_.scale_count; ++block) {
      const size_t begin = block * kBlock, end = std::min(begin + kBlock, sums_.size());
      uint32_t largest = 0;
      for (size_t i = begin; i < end; ++i) largest = std::max(largest, formula::magnitude_bits(sums_[i]));
      const formula::Scale scale = formula::scale_of(largest, most());
      put(layout_.scales_at, block, scale.scale);
      int codes[kBlock] = {};
      for (size_t i = begin; i < end; ++i) {
        const auto [code, decoded] = coded(i, scale);
        codes[i - begin] = code;
        left_[i] = formula::left_of(sums_[i], decoded);
      }
      for (size_t i = 0; i < kBlock; ++i) {
        if (codec_.kind == CodecKind::kInt4) {
          if (i < kHalf) {
            put(layout_.data_at, block * kHalf + i,
                static_cast<uint8_t>((codes[i] + 8) | (codes[i + kHalf] + 8) << 4));
          }
        } else {
          put(layout_.data_at, begin + i, static_cast<uint8_t>(codes[i]));
        }
      }
    }
  }

  void signs() {
    constexpr size_t kBlock = formula::kSignBlock, kLanes = formula::kSignLanes;
    for (size_t block = 0; block < layout_.scale_count; ++block) {
      const size_t begin = block * kBlock, end = std::min(begin + kBlock, sums_.size());
      float lanes[kLanes] = {};
      for (size_t i = begin; i < end; ++i) lanes[(i - begin) % kLanes] += std::fabs(sums_[i]);
      for (size_t step = kLanes / 2; step > 0; step /= 2) {
        for (size_t lane = 0; lane < step; ++lane) lanes[lane] += lanes[lane + step];
      }
      const float scale = formula::sign_scale_of(lanes[0], static_cast<int>(end - begin));
      put(layout_.scales_at, block, scale);
      for (size_t i = begin; i < end; ++i) {
        const bool negative = std::signbit(sums_[i]) && formula::is_finite(scale);
        message_[layout_.data_at + i / 8] |= static_cast<std::byte>(negative << (i % 8));
        left_[i] = formula::left_of(sums_[i], formula::signed_scale(scale, negative));
      }
    }
  }

  void some() {
    std::vector<uint32_t> positions(codec_.kind == CodecKind::kTopK ? sums_.size() : layout_.entries);
    std::iota(positions.begin(), positions.end(), 0u);
    if (codec_.kind == CodecKind::kTopK) {
      const auto order = [&](uint32_t i) {
        return std::isnan(sums_[i]) ? ~0u : formula::magnitude_bits(sums_[i]);
      };
      std::stable_sort(positions.begin(), positions.end(),
                       [&](uint32_t a, uint32_t b) { return order(a) > order(b); });
      positions.resize(layout_.entries);
      std::sort(positions.begin(), positions.end());
    } else {
      for (uint32_t& position : positions) {
        const uint32_t begin = position * codec_.every, stretch = position;
        const auto length = static_cast<uint32_t>(std::min<size_t>(codec_.every, sums_.size() - begin));
        position = begin + formula::chosen_of(seed_, stretch, length);
      }
    }
    for (size_t i = 0; i < sums_.size(); ++i) left_[i] = formula::left_unsent(sums_[i]);
    for (size_t entry = 0; entry < positions.size(); ++entry) {
      if (codec_.kind == CodecKind::kTopK) put(layout_.positions_at, entry, positions[entry]);
      put(layout_.data_at, entry, formula::sent_of(sums_[positions[entry]]));
      left_[positions[entry]] = 0;
    }
    if (codec_.kind == CodecKind::kTopK) return;
    for (uint32_t i = 0; i < sums_.size(); ++i) {
      const uint32_t entry = i / codec_.every;
      if (!std::isfinite(sums_[i]) && positions[entry] != i) {
        put(layout_.data_at, entry, formula::float_of(formula::kNanBits));
      }
    }
  }

  Codec codec_;
  MessageLayout layout_;
  std::vector<float> sums_;
  uint32_t seed_;
  std::vector<std::byte> message_;
  std::vector<float> left_;
};

}  // namespace braid::testing

// SPDX-License-Identifier: Apache-2.0
#include "parameters/coded_values.h"

#include <bit>
#include <cstring>

namespace braid {
namespace {

constexpr uint32_t kExponent = 0x7f800000;

// A NaN in a difference would stay in the vector that the worker has, and spread over a block of a scaled codec.
bool is_difference_finite(const float* values, const float* held, size_t count) {
  uint32_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    found |= static_cast<uint32_t>((std::bit_cast<uint32_t>(values[i] - held[i]) & kExponent) == kExponent);
  }
  return found == 0;
}

}  // namespace

CodedValues::Message CodedValues::make(uint16_t shard, const float* values, size_t count, uint64_t beginning,
                                       float* scratch) {
  const Message whole{std::as_bytes(std::span(values, count)), std::nullopt};
  if (!codec_ || count == 0) return whole;
  Held& held = held_[shard];
  const bool has_values = held.values && held.beginning == beginning;
  if (!has_values || !is_difference_finite(values, held.values.get(), count)) {
    if (!held.values) held.values = make_floats(count);
    std::memcpy(held.values.get(), values, count * sizeof(float));
    held.count = count;
    held.beginning = beginning;
    return whole;
  }
  if (scratch == nullptr) {
    scratch_.resize(count);
    scratch = scratch_.data();
  }
  for (size_t i = 0; i < count; ++i) scratch[i] = values[i] - held.values[i];
  message_.resize(body_bytes(codec_, count));
  encode(*codec_, scratch, count, 1, nullptr, seed_of(worker_, shard, held.messages++), message_);
  static_cast<void>(decode_add(*codec_, message_, held.values.get(), count));  // it was just encoded
  return {message_, codec_};
}

size_t CodedValues::bytes() const {
  size_t bytes = message_.capacity() + scratch_.capacity() * sizeof(float);
  for (const auto& [shard, held] : held_) bytes += held.count * sizeof(float);
  return bytes;
}

void ReceivedValues::take(uint16_t shard, const float* values, size_t count) {
  held_[shard].assign(values, values + count);
}

Status ReceivedValues::add(uint16_t shard, const Codec& codec, ConstBytes message, float* out, size_t count) {
  const auto held = held_.find(shard);
  if (held == held_.end() || held->second.size() != count) {
    return {Code::kMismatch, "a difference of values came before the values"};
  }
  if (const Status bad = decode_add(codec, message, held->second.data(), count); !bad.ok()) {
    return {Code::kMismatch, "the values do not decode: " + bad.message()};
  }
  if (count > 0) std::memcpy(out, held->second.data(), count * sizeof(float));
  return {};
}

size_t ReceivedValues::bytes() const {
  size_t bytes = 0;
  for (const auto& [shard, values] : held_) bytes += values.capacity() * sizeof(float);
  return bytes;
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace braid {
namespace {

constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load_big_endian(const std::byte* from) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(from[i]);
  return value;
}

void store_big_endian(uint64_t value, int bytes, std::byte* to) {
  for (int i = bytes - 1; i >= 0; --i, value >>= 8) to[i] = static_cast<std::byte>(value);
}

}  // namespace

void Sha256::compress(const std::byte* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = load_big_endian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> add = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += add[i];
}

void Sha256::update(ConstBytes bytes) {
  while (!bytes.empty()) {
    const size_t filled = total_bytes_ % block_.size();
    const size_t take = std::min(bytes.size(), block_.size() - filled);
    std::memcpy(block_.data() + filled, bytes.data(), take);
    total_bytes_ += take;
    bytes = bytes.subspan(take);
    if (filled + take == block_.size()) compress(block_.data());
  }
}

Digest Sha256::finish() {
  const uint64_t total_bits = total_bytes_ * 8;
  // The padding: one 1 bit, zeros up to 8 bytes before the end of a block, the length.
  std::array<std::byte, 72> padding{std::byte{0x80}};
  const size_t filled = total_bytes_ % 64;
  const size_t zeros_end = (filled < 56 ? 56 : 120) - filled;
  store_big_endian(total_bits, 8, padding.data() + zeros_end);
  update(ConstBytes(padding).first(zeros_end + 8));
  Digest digest;
  for (size_t i = 0; i < state_.size(); ++i) store_big_endian(state_[i], 4, digest.data() + 4 * i);
  return digest;
}

Digest sha256(ConstBytes bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

Digest hmac_sha256(ConstBytes key, ConstBytes message) {
  std::array<std::byte, 64> padded{};
  const Digest hashed = key.size() > padded.size() ? sha256(key) : Digest{};
  if (key.size() > padded.size()) key = hashed;
  std::copy(key.begin(), key.end(), padded.begin());

  for (std::byte& byte : padded) byte ^= std::byte{0x36};
  Sha256 inner;
  inner.update(padded);
  inner.update(message);
  for (std::byte& byte : padded) byte ^= std::byte{0x36 ^ 0x5c};
  Sha256 outer;
  outer.update(padded);
  outer.update(inner.finish());
  return outer.finish();
}

bool equal_in_constant_time(ConstBytes a, ConstBytes b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = difference | std::to_integer<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

std::string hex(ConstBytes bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<size_t>(byte >> 4)];
    text += kDigits[std::to_integer<size_t>(byte & std::byte{15})];
  }
  return text;
}

}  // namespace braid

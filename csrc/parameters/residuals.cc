// SPDX-License-Identifier: Apache-2.0
#include "parameters/residuals.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"

namespace braid {
namespace {

void drop_what_is_not_finite(float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) values[i] = std::isfinite(values[i]) ? values[i] : 0.0f;
}

}  // namespace

Residuals::Residuals(std::optional<Codec> codec, const std::vector<size_t>& counts, int worker)
    : codec_(codec), worker_(static_cast<uint32_t>(worker)) {
  for (const size_t count : counts) shards_.emplace_back().count = count;
}

float* Residuals::lacking(Kept& kept) {
  if (!kept.lacking) {
    kept.lacking = make_floats(kept.count);
    std::fill_n(kept.lacking.get(), kept.count, 0.0f);
  }
  return kept.lacking.get();
}

void Residuals::encode(size_t shard, const float* update, float scale, Bytes out) {
  const std::lock_guard lock(mutex_);
  Kept& kept = shards_[shard];
  if (kept.count == 0) return;
  const uint32_t seed = seed_of(worker_, static_cast<uint32_t>(shard), kept.messages++);
  braid::encode(*codec_, update, kept.count, scale, lacking(kept), seed, out);
}

void Residuals::give_back(size_t shard, ConstBytes message) {
  const std::lock_guard lock(mutex_);
  Kept& kept = shards_[shard];
  if (!codec_ || kept.count == 0) return;
  if (const Status bad = decode_add(*codec_, message, lacking(kept), kept.count); !bad.ok()) {
    log(LogLevel::kWarning, "a push that was lost cannot be kept: " + bad.message());
  }
  drop_what_is_not_finite(lacking(kept), kept.count);
}

void Residuals::give_back(size_t shard, const float* update, float scale) {
  const std::lock_guard lock(mutex_);
  Kept& kept = shards_[shard];
  if (!codec_ || kept.count == 0) return;
  float* const values = lacking(kept);
  for (size_t i = 0; i < kept.count; ++i) values[i] += scale * update[i];
  drop_what_is_not_finite(values, kept.count);
}

Floats Residuals::take(size_t shard, const float* update, float scale) {
  const std::lock_guard lock(mutex_);
  Kept& kept = shards_[shard];
  Floats whole = std::move(kept.lacking);
  for (size_t i = 0; whole && i < kept.count; ++i) whole[i] += scale * update[i];
  return whole;
}

std::vector<float> Residuals::values(size_t shard) const {
  const std::lock_guard lock(mutex_);
  const Kept& kept = shards_[shard];
  if (!kept.lacking) return std::vector<float>(kept.count);
  return {kept.lacking.get(), kept.lacking.get() + kept.count};
}

size_t Residuals::bytes() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const Kept& kept : shards_) bytes += kept.lacking ? kept.count * sizeof(float) : 0;
  return bytes;
}

}  // namespace braid

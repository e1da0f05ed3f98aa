// SPDX-License-Identifier: Apache-2.0
#include "parameters/shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "parameters/rows.h"

namespace braid {
namespace {

void copy(float* to, const float* from, size_t count) {
  if (count > 0) std::memcpy(to, from, count * sizeof(float));
}

}  // namespace

Shard::Shard(size_t begin, size_t count, const ShardRule& rule, bool is_mapped)
    : begin_(begin),
      count_(count),
      rule_(rule),
      state_vectors_(state_vectors(rule.rule)),
      is_mapped_(is_mapped),
      staleness_(kStalenessRows) {}

Status Shard::install(const float* values, uint64_t version) {
  ++beginning_;
  if (is_mapped_) {
    if (!mapped_) {
      auto made = MappedShard::create(begin_, count_, rule_);
      if (!made.ok()) return made.status();
      mapped_ = std::move(made).value();
    }
    mapped_->install(values, version, 0);
    return {};
  }
  while (state_.size() < static_cast<size_t>(state_vectors_)) state_.push_back(make_floats(count_));
  if (!values_) values_ = make_floats(count_);  // else an answer may be on its way from there
  copy(values_.get(), values, count_);
  for (const Floats& vector : state_) std::fill_n(vector.get(), count_, 0.0f);
  backups_.clear();
  version_ = version;
  steps_ = 0;
  return {};
}

Status Shard::check(std::span<const RangeNumbers> table) const {
  return check_rows(rule_.rule, begin_, count_, table);
}

Result<uint32_t> Shard::apply(const Update& update) {
  if (mapped_) {
    const auto applied = mapped_->apply(update);
    if (!applied.ok()) return applied.status();
    return applied.value().staleness;
  }
  if (Status bad = check(update.table); !bad.ok()) return bad;
  const uint64_t stale = version_ - std::min(update.base, version_);
  RowsUpdate rows;
  rows.step = steps_ + 1;
  rows.scale = update.scale;
  if (rule_.divides_by_staleness && stale > 1) rows.divides = static_cast<double>(stale);
  rows.memory.values = values_.get();
  rows.memory.update = update.update;
  rows.memory.result = update.result;
  rows.memory.count = count_;
  for (int i = 0; i < state_vectors_; ++i) rows.memory.state[i] = state_[static_cast<size_t>(i)].get();
  // A worker without a copy has read nothing yet: then there is nothing to make up for.
  if (rule_.rule.compensates) {
    const auto backup = backups_.find(update.worker);
    rows.memory.backup = backup == backups_.end() ? values_.get() : backup->second.get();
  }
  apply_rows(rule_.rule, begin_, update.table, rows);
  ++steps_;
  ++version_;
  ++staleness_[std::min<uint64_t>(stale, kStalenessRows - 1)];
  if (update.result != nullptr && update.worker >= 0) has_read(update.worker);
  return static_cast<uint32_t>(std::min<uint64_t>(stale, UINT32_MAX));
}

void Shard::subtract(const float* update, float scale) {
  for (size_t i = 0; i < count_; ++i) values_[i] -= scale * update[i];
  ++version_;
}

void Shard::read(int worker, float* into) {
  copy(into, values(), count_);
  has_read(worker);
}

void Shard::has_read(int worker) {
  if (!rule_.rule.compensates) return;
  Floats& backup = backups_[worker];
  if (!backup) backup = make_floats(count_);
  copy(backup.get(), values_.get(), count_);
}

void Shard::snapshot(float* into) const {
  copy(into, values(), count_);
  for (const Floats& vector : state_) copy(into += count_, vector.get(), count_);
}

Status Shard::restore(const float* from, uint64_t steps, uint64_t version) {
  if (mapped_) {
    ++beginning_;
  } else if (Status bad = install(from, version); !bad.ok()) {
    return bad;
  }
  if (mapped_) {
    mapped_->install(from, version, steps);
    return {};
  }
  set_state(from + count_, steps);
  return {};
}

void Shard::set_state(const float* vectors, uint64_t steps) {
  for (const Floats& vector : state_) {
    copy(vector.get(), vectors, count_);
    vectors += count_;
  }
  steps_ = steps;
}

size_t Shard::bytes() const {
  if (mapped_) return mapped_->bytes();
  if (!values_) return 0;
  return count_ * sizeof(float) * (1 + state_.size() + backups_.size());
}

}  // namespace braid

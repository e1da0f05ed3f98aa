// SPDX-License-Identifier: Apache-2.0
#include "parameters/shard.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace braid {
namespace {

constexpr size_t kStalenessRows = 65;

void copy(float* to, const float* from, size_t count) {
  if (count > 0) std::memcpy(to, from, count * sizeof(float));
}

}  // namespace

Shard::Shard(size_t begin, size_t count, const RuleSpec& rule, bool divides_by_staleness)
    : begin_(begin),
      count_(count),
      rule_(rule),
      state_vectors_(state_vectors(rule)),
      divides_by_staleness_(divides_by_staleness),
      staleness_(kStalenessRows) {}

void Shard::install(const float* values, uint64_t version) {
  while (state_.size() < static_cast<size_t>(state_vectors_)) state_.push_back(make_floats(count_));
  if (!values_) values_ = make_floats(count_);  // else an answer may be on its way from there
  copy(values_.get(), values, count_);
  for (const Floats& vector : state_) std::fill_n(vector.get(), count_, 0.0f);
  backups_.clear();
  version_ = version;
  steps_ = 0;
  ++beginning_;
}

Status Shard::check(std::span<const RangeNumbers> table) const {
  uint64_t covered = 0;
  for (const RangeNumbers& row : table) {
    if (row.end < covered) return {Code::kInvalidArgument, "the ranges of a table must ascend"};
    if (row.end > begin_ && covered < begin_ + count_) {
      if (Status bad = braid::check(rule_, row.numbers); !bad.ok()) return bad;
    }
    covered = row.end;
  }
  if (covered >= begin_ + count_) return {};
  return {Code::kInvalidArgument, "a table gives numbers for " + std::to_string(covered) +
                                      " elements, not for all " + std::to_string(begin_ + count_)};
}

Result<uint32_t> Shard::apply(const Update& update) {
  if (Status bad = check(update.table); !bad.ok()) return bad;
  const uint64_t stale = version_ - std::min(update.base, version_);
  const auto backup = backups_.find(update.worker);
  size_t done = 0;
  for (const RangeNumbers& row : update.table) {
    const size_t end = std::min<size_t>(std::max<size_t>(row.end, begin_) - begin_, count_);
    if (end <= done) continue;
    RuleNumbers numbers = row.numbers;
    if (divides_by_staleness_ && stale > 1) numbers.rate /= static_cast<double>(stale);
    RuleMemory memory;
    memory.values = values_.get() + done;
    memory.update = update.update + done;
    for (int i = 0; i < state_vectors_; ++i) memory.state[i] = state_[static_cast<size_t>(i)].get() + done;
    if (rule_.compensates) {  // a worker without a copy has read nothing yet: then there is nothing to make up for
      memory.backup = (backup == backups_.end() ? values_.get() : backup->second.get()) + done;
    }
    if (update.result != nullptr) memory.result = update.result + done;
    memory.count = end - done;
    braid::apply(rule_, numbers, steps_ + 1, update.scale, memory);
    done = end;
  }
  ++steps_;
  ++version_;
  ++staleness_[std::min<uint64_t>(stale, kStalenessRows - 1)];
  if (update.result != nullptr && update.worker >= 0) has_read(update.worker);
  return static_cast<uint32_t>(std::min<uint64_t>(stale, UINT32_MAX));
}

void Shard::read(int worker, float* into) {
  copy(into, values_.get(), count_);
  has_read(worker);
}

void Shard::has_read(int worker) {
  if (!rule_.compensates) return;
  Floats& backup = backups_[worker];
  if (!backup) backup = make_floats(count_);
  copy(backup.get(), values_.get(), count_);
}

void Shard::snapshot(float* into) const {
  copy(into, values_.get(), count_);
  for (const Floats& vector : state_) copy(into += count_, vector.get(), count_);
}

void Shard::restore(const float* from, uint64_t steps) {
  install(from, version_ + 1);
  for (const Floats& vector : state_) copy(vector.get(), from += count_, count_);
  steps_ = steps;
}

size_t Shard::bytes() const {
  if (!values_) return 0;
  return count_ * sizeof(float) * (1 + state_.size() + backups_.size());
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "parameters/mapped_shard.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "memory/reserve.h"
#include "parameters/rows.h"

namespace braid {

MappedShard::MappedShard(Segment segment, size_t begin, size_t count, const ShardRule& rule, bool is_ours)
    : segment_(std::move(segment)),
      begin_(begin),
      count_(count),
      rule_(rule),
      is_ours_(is_ours),
      header_(is_ours ? new (segment_.data() + Segment::kReservedBytes) Header
                      : std::launder(reinterpret_cast<Header*>(segment_.data() + Segment::kReservedBytes))),
      values_(reinterpret_cast<float*>(segment_.data() + kValuesAt)) {
  if (is_ours) header_->count = count;
}

MappedShard::~MappedShard() {
  if (is_ours_) give_up();
}

Result<std::unique_ptr<MappedShard>> MappedShard::create(size_t begin, size_t count, const ShardRule& rule) {
  auto segment = Segment::create("braid-shard", kValuesAt + count * sizeof(float));
  if (!segment.ok()) return segment.status().within("no memory to share a shard");
  if (Status bad = reserve(segment.value().data(), segment.value().size()); !bad.ok()) {
    return bad.within("no memory to share a shard");
  }
  return std::unique_ptr<MappedShard>(new MappedShard(std::move(segment).value(), begin, count, rule, true));
}

Result<std::unique_ptr<MappedShard>> MappedShard::attach(std::string_view handle, size_t begin, size_t count,
                                                         const ShardRule& rule) {
  auto segment = Segment::attach(handle);
  if (!segment.ok()) return segment.status();
  if (segment.value().size() < kValuesAt + count * sizeof(float)) {
    return Status(Code::kMismatch, "a shared shard is smaller than its server says");
  }
  std::unique_ptr<MappedShard> shard(new MappedShard(std::move(segment).value(), begin, count, rule, false));
  if (shard->header_->count != count)
    return Status(Code::kMismatch, "a shared shard has another number of elements");
  return shard;
}

bool MappedShard::is_given_up() const { return header_->is_given_up.load(std::memory_order_acquire) != 0; }
void MappedShard::give_up(bool is_given_up) {
  header_->is_given_up.store(is_given_up ? 1 : 0, std::memory_order_release);
}

Result<MappedShard::Applied> MappedShard::apply(const Update& update) {
  if (Status bad = check_rows(rule_.rule, begin_, count_, update.table); !bad.ok()) return bad;
  const uint64_t before = header_->version.load(std::memory_order_relaxed);
  const uint64_t stale = before - std::min(update.base, before);
  RowsUpdate rows;
  rows.step = 1 + header_->steps.fetch_add(1, std::memory_order_relaxed);
  rows.scale = update.scale;
  if (rule_.divides_by_staleness && stale > 1) rows.divides = static_cast<double>(stale);
  rows.memory.values = values_;
  rows.memory.update = update.update;
  rows.memory.result = update.result;
  rows.memory.count = count_;
  apply_rows(rule_.rule, begin_, update.table, rows);
  header_->updates.fetch_add(1, std::memory_order_relaxed);
  header_->staleness[std::min<uint64_t>(stale, kStalenessRows - 1)].fetch_add(1, std::memory_order_relaxed);
  const uint64_t version = 1 + header_->version.fetch_add(1, std::memory_order_acq_rel);
  return Applied{static_cast<uint32_t>(std::min<uint64_t>(stale, UINT32_MAX)), version};
}

uint64_t MappedShard::read(float* into) const {
  const uint64_t version = header_->version.load(std::memory_order_acquire);
  if (count_ > 0) std::memcpy(into, values_, count_ * sizeof(float));
  return version;
}

void MappedShard::install(const float* values, uint64_t version, uint64_t steps) {
  if (count_ > 0) std::memcpy(values_, values, count_ * sizeof(float));
  header_->steps.store(steps, std::memory_order_relaxed);
  header_->version.store(version, std::memory_order_release);
}

uint64_t MappedShard::version() const { return header_->version.load(std::memory_order_acquire); }
uint64_t MappedShard::steps() const { return header_->steps.load(std::memory_order_relaxed); }
uint64_t MappedShard::updates() const { return header_->updates.load(std::memory_order_relaxed); }

std::vector<uint64_t> MappedShard::staleness() const {
  std::vector<uint64_t> rows;
  for (const auto& row : header_->staleness) rows.push_back(row.load(std::memory_order_relaxed));
  return rows;
}

}  // namespace braid

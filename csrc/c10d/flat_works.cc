// SPDX-License-Identifier: Apache-2.0
#include "c10d/flat_works.h"

#include <algorithm>
#include <utility>

#include "c10d/tensors.h"

namespace braid::adapter {
namespace {

std::vector<ConstBytes> extents_of(const std::vector<at::Tensor>& tensors) {
  std::vector<ConstBytes> extents;
  for (const at::Tensor& tensor : tensors) extents.push_back(extent_of(tensor));
  return extents;
}

}  // namespace

Reach::Reach(const std::vector<at::Tensor>& read, const std::vector<at::Tensor>& written)
    : read_(extents_of(read)), written_(extents_of(written)) {}

bool Reach::meets_any(ConstBytes extent, const std::vector<ConstBytes>& others) {
  return std::any_of(others.begin(), others.end(), [&](ConstBytes other) { return overlap(extent, other); });
}

bool Reach::meets(const Reach& other) const {
  const auto touched = [&](ConstBytes extent) { return other.is_touched(extent); };
  const auto written = [&](ConstBytes extent) { return other.is_written(extent); };
  return std::any_of(written_.begin(), written_.end(), touched) ||
         std::any_of(read_.begin(), read_.end(), written);
}

void FlatWorks::add(uint64_t id, Work work, Reach reach) {
  const std::lock_guard<std::mutex> lock(mutex_);
  entries_.emplace(id, Entry{std::move(work), std::move(reach)});
}

void FlatWorks::remove(uint64_t id) {
  decltype(entries_)::node_type removed;  // released without the lock: releasing a tensor may take the GIL
  const std::lock_guard<std::mutex> lock(mutex_);
  removed = entries_.extract(id);
}

std::vector<FlatWorks::Work> FlatWorks::that_meet(const Reach& reach) const {
  std::vector<Work> met;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [id, entry] : entries_) {
    if (entry.reach.meets(reach)) met.push_back(entry.work);
  }
  return met;
}

}  // namespace braid::adapter

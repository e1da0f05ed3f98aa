// SPDX-License-Identifier: Apache-2.0
#include "parameters/losses.h"

#include <algorithm>
#include <cstring>

namespace braid {

void Losses::add(uint64_t moves, uint64_t version) {
  if (version == kNone) return;
  if (!list_.empty()) moves = std::max(moves, list_.back().moves);
  while (!list_.empty() && list_.back().version >= version) list_.pop_back();
  if (!list_.empty() && list_.back().moves == moves) return;
  list_.push_back({moves, version});
  if (list_.size() <= kMost) return;
  list_[1].version = list_[0].version;
  list_.erase(list_.begin());
}

uint64_t Losses::least_since(uint64_t moves) const {
  const auto first =
      std::find_if(list_.begin(), list_.end(), [moves](const Loss& loss) { return loss.moves > moves; });
  return first == list_.end() ? kNone : first->version;
}

void Losses::write(float* to) const {
  static_assert(sizeof(Loss) * kMost == kFloats * sizeof(float));
  std::vector<Loss> rows = list_;
  rows.resize(kMost);
  std::memcpy(static_cast<void*>(to), rows.data(), kFloats * sizeof(float));
}

// The numbers come from another process: they may be in any order.
Losses Losses::read(const float* from) {
  std::vector<Loss> rows(kMost);
  std::memcpy(static_cast<void*>(rows.data()), from, kFloats * sizeof(float));
  Losses losses;
  for (const Loss& row : rows) {
    if (row.moves > 0) losses.add(row.moves, row.version);
  }
  return losses;
}

}  // namespace braid

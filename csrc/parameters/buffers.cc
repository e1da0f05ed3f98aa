// SPDX-License-Identifier: Apache-2.0
#include "parameters/buffers.h"

#include <algorithm>
#include <utility>

namespace braid {

Buffers::Buffers(int count, Spares spares, Needs needs, DoorbellWord& bell)
    : count_(count), spares_(spares), needs_(std::move(needs)), bell_(bell) {}

Floats Buffers::take(const Job& job) {
  const auto place = std::find(queue_.begin(), queue_.end(), &job);
  int left = free();
  for (auto earlier = queue_.begin(); earlier != place && left > 0; ++earlier) {
    if (needs_(**earlier) <= left) --left;
  }
  if (left <= 0 || needs_(job) > left) {
    if (place == queue_.end()) queue_.push_back(&job);
    return nullptr;
  }
  Floats buffer = spare_.empty() ? make_floats(size_) : std::move(spare_.back());
  if (!spare_.empty()) spare_.pop_back();
  if (place != queue_.end()) queue_.erase(place);
  ++out_;
  return buffer;
}

void Buffers::give_back(Floats buffer) {
  if (!buffer) return;
  --out_;
  if (spares_ == Spares::kKept) spare_.push_back(std::move(buffer));
  look_again();
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "c10d/reserve.h"

#include <ATen/ops/from_blob.h>

#include <iterator>

#include "c10d/device.h"

namespace braid::adapter {
namespace {

constexpr size_t kAlignment = 256;

}  // namespace

Reserve::Reserve(c10::Device device, size_t bytes)
    : memory_(pinned_bytes(device, bytes / kAlignment * kAlignment)) {
  if (memory_.numel() > 0) free_[0] = memory_.nbytes();
}

at::Tensor Reserve::take(size_t bytes) {
  const size_t wanted = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto part = free_.begin(); part != free_.end(); ++part) {
    const auto [offset, length] = *part;
    if (length < wanted) continue;
    free_.erase(part);
    if (length > wanted) free_[offset + wanted] = length - wanted;
    const auto release = [self = shared_from_this(), offset, wanted](void*) { self->give_back(offset, wanted); };
    return at::from_blob(static_cast<std::byte*>(memory_.mutable_data_ptr()) + offset,
                         {static_cast<int64_t>(bytes)}, release, at::TensorOptions().dtype(at::kByte));
  }
  return {};
}

void Reserve::give_back(size_t offset, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto part = free_.emplace(offset, bytes).first;
  const auto next = std::next(part);
  if (next != free_.end() && offset + part->second == next->first) {
    part->second += next->second;
    free_.erase(next);
  }
  if (part == free_.begin()) return;
  const auto before = std::prev(part);
  if (before->first + before->second != offset) return;
  before->second += part->second;
  free_.erase(part);
}

}  // namespace braid::adapter

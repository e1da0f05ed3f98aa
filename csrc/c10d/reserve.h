// SPDX-License-Identifier: Apache-2.0
// One block of pinned memory that is allocated once and cut into parts, so nothing is pinned while streams wait for
// flags.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace braid::adapter {

// Thread safe.
class Reserve : public std::enable_shared_from_this<Reserve> {
 public:
  // Pins the memory.
  Reserve(c10::Device device, size_t bytes);
  // A part of the reserve with this many bytes, which goes back when the tensor is released. Undefined if no part is
  // as long.
  at::Tensor take(size_t bytes);

 private:
  void give_back(size_t offset, size_t bytes);

  const at::Tensor memory_;
  std::mutex mutex_;
  std::map<size_t, size_t> free_;  // by offset; no two are neighbours
};

}  // namespace braid::adapter

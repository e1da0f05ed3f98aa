// SPDX-License-Identifier: Apache-2.0
// Counts the bytes that groups copy between accelerators and the host.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace braid::adapter {

// Of all groups of this process, by the group's name. Thread safe.
class CopiedBytes {
 public:
  void add(const std::string& group, uint64_t down, uint64_t up) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& [all_down, all_up] = bytes_[group];
    all_down += down;
    all_up += up;
  }
  // Bytes down to the host, and up to the device.
  std::pair<uint64_t, uint64_t> of(const std::string& group) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = bytes_.find(group);
    return found == bytes_.end() ? std::pair<uint64_t, uint64_t>() : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::pair<uint64_t, uint64_t>> bytes_;
};

}  // namespace braid::adapter

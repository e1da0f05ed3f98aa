// SPDX-License-Identifier: Apache-2.0
// A store for ranks that are threads of one process.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "base/store.h"

namespace braid::testing {

class MemoryStore final : public Store {
 public:
  Status set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    added_.notify_all();
    return {};
  }
  Result<std::string> get(const std::string& key, milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (added_.wait_for(lock, timeout, [&] { return values_.contains(key); })) return values_[key];
    return Status(Code::kTimeout, "no key " + key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::map<std::string, std::string> values_;
};

}  // namespace braid::testing

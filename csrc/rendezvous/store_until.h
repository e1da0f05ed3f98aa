// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/store.h"

namespace braid {

// A store whose waits end early with kAborted once `given_up` returns true. So nobody waits in the store for a
// group that has failed. A wait calls `given_up` several times a second.
class StoreUntil final : public Store {
 public:
  StoreUntil(std::shared_ptr<Store> store, std::function<bool()> given_up)
      : store_(std::move(store)), given_up_(std::move(given_up)) {}

  Status set(const std::string& key, const std::string& value) override { return store_->set(key, value); }
  Result<std::string> get(const std::string& key, milliseconds timeout) override {
    const Deadline deadline = deadline_after(timeout);
    for (;;) {
      if (given_up_()) return Status(Code::kAborted, "nobody waits for key '" + key + "' any more");
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
      const milliseconds slice = timeout.count() > 0 ? std::clamp(left, milliseconds(1), kSlice) : kSlice;
      auto value = store_->get(key, slice);
      if (value.ok() || value.status().code() != Code::kTimeout || Clock::now() >= deadline) return value;
    }
  }

 private:
  static constexpr milliseconds kSlice{200};

  const std::shared_ptr<Store> store_;
  const std::function<bool()> given_up_;
};

}  // namespace braid

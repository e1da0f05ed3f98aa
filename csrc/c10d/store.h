// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/look_up.h"
#include "base/store.h"

namespace braid::adapter {

// A c10d store as braid sees it: its exceptions become Status values. As thread-safe as the store itself; stores
// written in Python take the GIL, so callers must not hold it.
class C10dStore final : public Store {
 public:
  // Who gives up waits for no key any more: kAborted.
  explicit C10dStore(c10::intrusive_ptr<::c10d::Store> store, GiveUp give_up = {})
      : store_(std::move(store)), give_up_(std::move(give_up)) {}

  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, milliseconds timeout) override;

 private:
  // Looks up, unless it has just done so.
  bool is_given_up();

  const c10::intrusive_ptr<::c10d::Store> store_;
  const GiveUp give_up_;
  Clock::time_point look_up_at_{};
};

}  // namespace braid::adapter

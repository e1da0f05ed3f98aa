// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/interruptible_wait.h"
#include "base/store.h"

namespace braid::adapter {

// A c10d store as a braid store: exceptions become Status values. set() is as thread safe as the c10d store. With
// `give_up`, one thread at a time may call get(). Stores written in Python take the GIL, so callers must not hold
// it.
class C10dStore final : public Store {
 public:
  // get() ends with kAborted once `give_up` returns true.
  explicit C10dStore(c10::intrusive_ptr<::c10d::Store> store, GiveUp give_up = {})
      : store_(std::move(store)), give_up_(std::move(give_up)) {}

  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, milliseconds timeout) override;

 private:
  // Calls give_up_, unless it did so a moment ago.
  bool is_given_up();

  const c10::intrusive_ptr<::c10d::Store> store_;
  const GiveUp give_up_;
  Clock::time_point look_up_at_{};
};

}  // namespace braid::adapter

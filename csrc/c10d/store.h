// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "communicator/store.h"

namespace braid::adapter {

// A c10d store as braid sees it: its exceptions become Status values. As thread-safe as the store itself; stores
// written in Python take the GIL, so callers must not hold it.
class C10dStore final : public Store {
 public:
  explicit C10dStore(c10::intrusive_ptr<::c10d::Store> store) : store_(std::move(store)) {}

  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, milliseconds timeout) override;

 private:
  const c10::intrusive_ptr<::c10d::Store> store_;
};

}  // namespace braid::adapter

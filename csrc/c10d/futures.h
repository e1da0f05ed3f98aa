// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>

namespace braid::adapter {

// The futures given out for an operation. Each is made when it is first asked for.
struct Futures {
  c10::intrusive_ptr<c10::ivalue::Future> values;
  c10::intrusive_ptr<c10::ivalue::Future> result;

  // REQUIRES: the operation is done. The caller holds neither the GIL nor a lock that a callback may need.
  void wait() const {
    if (values) values->wait();
    if (result) result->wait();
  }
};

}  // namespace braid::adapter

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>

namespace braid::adapter {

// What was given out for an operation; made when first asked for.
struct Futures {
  c10::intrusive_ptr<c10::ivalue::Future> values;
  c10::intrusive_ptr<c10::ivalue::Future> result;

  // REQUIRES: the operation is done, and no lock is held that a callback may want, nor the GIL.
  void wait() const {
    if (values) values->wait();
    if (result) result->wait();
  }
};

}  // namespace braid::adapter

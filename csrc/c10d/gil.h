// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/python_headers.h>

namespace braid::adapter {

// Releases the GIL while in scope, if this thread holds it. Whatever may wait does so without the GIL: a thread
// that finishes an operation may need it for a Python callback.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* saved_ = nullptr;
};

}  // namespace braid::adapter

// SPDX-License-Identifier: Apache-2.0
#include "c10d/gil.h"

namespace braid::adapter {

WithoutGil::WithoutGil() {
  if (Py_IsInitialized() && PyGILState_Check()) saved_ = PyEval_SaveThread();
}

WithoutGil::~WithoutGil() {
  if (saved_ != nullptr) PyEval_RestoreThread(saved_);
}

}  // namespace braid::adapter

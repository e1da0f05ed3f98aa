// SPDX-License-Identifier: Apache-2.0
// The short way of a blocking collective: for arguments that need no copy, no counts, no new array and no advice.
// They are looked at without running Python, which would take longer than a small collective itself.
//
// There is no second set of rules here: what is plain means the same to python/braid/_array/calls.py, and whatever is not
// plain, right or wrong, is left to it.
#pragma once

#include "python/array_communicator.h"

namespace braid {

// What a method was given. Borrowed; null where it has no such parameter, or that was left out and has no default.
struct Arguments {
  PyObject* x = nullptr;
  PyObject* op = nullptr;
  PyObject* root = nullptr;
  PyObject* out = nullptr;
};

// Carries a collective out and returns its result; null, with nothing done, where the arguments are not plain.
// Raises what the operation fails with. The GIL is held by the caller.
py::object run_if_plain(const ArrayCommunicator& communicator, CollectiveKind kind, const Arguments& given);

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/python_headers.h>

#include "interpreter/interrupts.h"
#include "interpreter/without_gil.h"

namespace braid::adapter {

// Throws the exception that a signal handler has raised, if any. May be called with or without the GIL.
void throw_if_any(Interrupts& interrupts);

}  // namespace braid::adapter

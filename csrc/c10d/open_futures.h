// SPDX-License-Identifier: Apache-2.0
// Futures that torch may wait for in C++ code, which does not check for signals. DDP does so at the end of
// backward.
#pragma once

#include <memory>

namespace braid::adapter {

class Completion;

// Remembers an operation whose future was given out. It is forgotten after its last reference is dropped.
void remember_open_future(const std::weak_ptr<Completion>& completion);

// Ends every wait for a future of an operation that still runs: the future completes with an error that becomes
// KeyboardInterrupt in Python's main thread. The operations go on. REQUIRES: the GIL is not held.
void interrupt_open_futures();

}  // namespace braid::adapter

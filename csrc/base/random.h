// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/span.h"
#include "base/status.h"

namespace braid {

// Fills `into` with random bytes of the operating system, good enough for secrets.
Status fill_random(Bytes into);

}  // namespace braid

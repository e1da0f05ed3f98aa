// SPDX-License-Identifier: Apache-2.0
// How fast a device's memory is copied to page-locked memory of the host, and back.
#pragma once

#include <c10/core/Device.h>

#include "base/copy_rates.h"

namespace braid::adapter {

// Measured at a device's first call, in some ten milliseconds, and kept by the process. Thread-safe. Throws what torch
// throws; a TypeError where why_no_path() has a reason.
CopyRates copy_rates(c10::Device device);

}  // namespace braid::adapter

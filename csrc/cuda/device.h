// SPDX-License-Identifier: Apache-2.0
// Where kernels run: a GPU through its driver, or, in tests, the host pretending to be one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "cuda/job.h"

namespace braid::cuda {

// A CUstream: 0 is the default one.
using Stream = uintptr_t;

class Device {
 public:
  virtual ~Device() = default;
  virtual uint32_t multiprocessors() const = 0;
  // Puts a kernel of that many blocks, by its name without "braid_", on the stream. Thread-safe.
  virtual Status launch(const char* kernel, uint32_t blocks, const Job& job, Stream stream) = 0;
  // Puts the zeroing of memory on the stream.
  virtual Status zero(void* at, size_t bytes, Stream stream) = 0;
};

}  // namespace braid::cuda

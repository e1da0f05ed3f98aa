// SPDX-License-Identifier: Apache-2.0
// Results of the driver's entry points, and what several files of them share.
#pragma once

#include <functional>

#include "cuda_driver/handles.h"

namespace executing {

enum Result : int {
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotReady = 600,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
};

inline const char* name_of(int result) {
  switch (result) {
    case 0: return "CUDA_SUCCESS";
    case kInvalidValue: return "CUDA_ERROR_INVALID_VALUE";
    case kOutOfMemory: return "CUDA_ERROR_OUT_OF_MEMORY";
    case kInvalidDevice: return "CUDA_ERROR_INVALID_DEVICE";
    case kInvalidContext: return "CUDA_ERROR_INVALID_CONTEXT";
    case kInvalidHandle: return "CUDA_ERROR_INVALID_HANDLE";
    case kNotReady: return "CUDA_ERROR_NOT_READY";
    case kNotSupported: return "CUDA_ERROR_NOT_SUPPORTED";
    case kCaptureUnsupported: return "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    default: return "CUDA_ERROR_UNKNOWN";
  }
}

// The device of the thread's current context; -1 where it has none.
int current_device();
// Why nothing can be queued on a stream now; 0: it can.
int why_not(const Stream& stream);
// Queues a job on a stream, which the caller names by its handle.
int push(void* stream, std::function<void()> job, bool delayed);

}  // namespace executing

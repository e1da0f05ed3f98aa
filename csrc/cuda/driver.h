// SPDX-License-Identifier: Apache-2.0
// NVIDIA's driver, found when the process asks for it: nothing of CUDA is linked, and none of its headers are needed.
// The types are those of the driver's ABI.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace braid::cuda {

using CuResult = int;  // 0 is success
using CuDevice = int;
using CuContext = void*;
using CuModule = void*;
using CuFunction = void*;
using CuStream = void*;
using CuEvent = void*;
using CuAddress = unsigned long long;

// CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT and so on.
inline constexpr int kMultiprocessorCount = 16;
inline constexpr int kCapabilityMajor = 75;
inline constexpr int kCapabilityMinor = 76;
// CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL.
inline constexpr int kPointerDevice = 9;
// CU_MEMHOSTALLOC_PORTABLE, CU_STREAM_NON_BLOCKING, CU_EVENT_DISABLE_TIMING.
inline constexpr unsigned kPortable = 1, kNonBlocking = 1, kWithoutTiming = 2;

// The entry points that are used: the member's name, the library's, and the arguments.
#define BRAID_CUDA_ENTRY_POINTS(X)                                                                              \
  X(init, "cuInit", unsigned)                                                                                   \
  X(error_name, "cuGetErrorName", CuResult, const char**)                                                       \
  X(error_text, "cuGetErrorString", CuResult, const char**)                                                     \
  X(device_count, "cuDeviceGetCount", int*)                                                                     \
  X(device_get, "cuDeviceGet", CuDevice*, int)                                                                  \
  X(device_name, "cuDeviceGetName", char*, int, CuDevice)                                                       \
  X(device_attribute, "cuDeviceGetAttribute", int*, int, CuDevice)                                              \
  X(retain_context, "cuDevicePrimaryCtxRetain", CuContext*, CuDevice)                                           \
  X(current_context, "cuCtxGetCurrent", CuContext*)                                                             \
  X(push_context, "cuCtxPushCurrent_v2", CuContext)                                                             \
  X(pop_context, "cuCtxPopCurrent_v2", CuContext*)                                                              \
  X(load_module, "cuModuleLoadData", CuModule*, const void*)                                                    \
  X(unload_module, "cuModuleUnload", CuModule)                                                                  \
  X(get_function, "cuModuleGetFunction", CuFunction*, CuModule, const char*)                                    \
  X(launch, "cuLaunchKernel", CuFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
    CuStream, void**, void**)                                                                                   \
  X(set_bytes, "cuMemsetD8Async", CuAddress, unsigned char, size_t, CuStream)                                   \
  X(finish_context, "cuCtxSynchronize")                                                                         \
  X(pointer_attribute, "cuPointerGetAttribute", void*, int, CuAddress)                                          \
  X(take_memory, "cuMemAlloc_v2", CuAddress*, size_t)                                                           \
  X(free_memory, "cuMemFree_v2", CuAddress)                                                                     \
  X(take_pinned, "cuMemHostAlloc", void**, size_t, unsigned)                                                    \
  X(free_pinned, "cuMemFreeHost", void*)                                                                        \
  X(copy_down, "cuMemcpyDtoHAsync_v2", void*, CuAddress, size_t, CuStream)                                      \
  X(copy_up, "cuMemcpyHtoDAsync_v2", CuAddress, const void*, size_t, CuStream)                                  \
  X(make_stream, "cuStreamCreate", CuStream*, unsigned)                                                         \
  X(finish_stream, "cuStreamSynchronize", CuStream)                                                             \
  X(stream_waits, "cuStreamWaitEvent", CuStream, CuEvent, unsigned)                                             \
  X(is_capturing, "cuStreamIsCapturing", CuStream, int*)                                                        \
  X(make_event, "cuEventCreate", CuEvent*, unsigned)                                                            \
  X(record_event, "cuEventRecord", CuEvent, CuStream)                                                           \
  X(end_event, "cuEventDestroy_v2", CuEvent)

// The same for entry points that an older library may lack. Their members are null then.
#define BRAID_CUDA_OPTIONAL_ENTRY_POINTS(X)                                          \
  X(wait_value, "cuStreamWaitValue32_v2", CuStream, CuAddress, unsigned, unsigned)   \
  X(write_value, "cuStreamWriteValue32_v2", CuStream, CuAddress, unsigned, unsigned) \
  X(host_address, "cuMemHostGetDevicePointer_v2", CuAddress*, void*, unsigned)

class Driver {
 public:
  // The process's, opened and initialised at the first call; the same error at every later one.
  static const Result<Driver>& of_process();
  // kUnsupported where there is no such library, it is not a driver, or it finds no device. Never closed again.
  static Result<Driver> open(const std::string& library);

  // kSystem, with the driver's words, unless `result` is success.
  Status check(const char* what, CuResult result) const;

  int devices() const { return devices_; }

#define BRAID_CUDA_MEMBER(member, name, ...) CuResult (*member)(__VA_ARGS__) = nullptr;
  BRAID_CUDA_ENTRY_POINTS(BRAID_CUDA_MEMBER)
  BRAID_CUDA_OPTIONAL_ENTRY_POINTS(BRAID_CUDA_MEMBER)
#undef BRAID_CUDA_MEMBER

 private:
  int devices_ = 0;
};

}  // namespace braid::cuda

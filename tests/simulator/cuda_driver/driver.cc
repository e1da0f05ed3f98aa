// SPDX-License-Identifier: Apache-2.0
// Entry points of the driver for devices, contexts, streams and events. The numbers are those of the driver's ABI.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "cuda_driver/handles.h"
#include "cuda_driver/memory.h"
#include "cuda_driver/results.h"

namespace executing {
namespace {

constexpr int kMostDevices = 4;
struct Context {
  int device;
};
Context contexts[kMostDevices] = {{0}, {1}, {2}, {3}};
thread_local std::deque<Context*> current;

int devices() {
  const char* const wanted = std::getenv("FAKE_CUDA_DEVICES");
  return wanted == nullptr ? 1 : std::atoi(wanted);
}

}  // namespace

int current_device() { return current.empty() || current.back() == nullptr ? -1 : current.back()->device; }

int why_not(const Stream& stream) {
  if (current_device() < 0) return kInvalidContext;
  return stream.capturing ? kCaptureUnsupported : 0;
}

int push(void* handle, std::function<void()> job, bool delayed) {
  Stream* const stream = find_stream(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (const int refused = why_not(*stream); refused != 0) return refused;
  stream->push(std::move(job), delayed);
  return 0;
}

}  // namespace executing

using namespace executing;

extern "C" {

// ---- For tests.

void fake_set_delays(int64_t on_default, int64_t on_made, int64_t random, uint32_t seed) {
  simulator::set_delays({on_default, on_made, random, seed});
}
void fake_hold(int on_default, int on_made) { simulator::hold({on_default != 0, on_made != 0}); }
void fake_set_capturing(void* stream, int capturing) { find_stream(stream)->capturing = capturing != 0; }
size_t fake_device_bytes() { return live_device_bytes(); }
size_t fake_pinned_bytes() { return live_pinned_bytes(); }

// ---- Devices and contexts.

int cuInit(unsigned) { return 0; }
int cuGetErrorName(int result, const char** name) { return (*name = name_of(result), 0); }
int cuGetErrorString(int, const char** text) { return (*text = "says the executing driver", 0); }
int cuDriverGetVersion(int* version) { return (*version = 13000, 0); }
int cuDeviceGetCount(int* count) { return (*count = devices(), 0); }
int cuDeviceGet(int* device, int ordinal) {
  return ordinal < 0 || ordinal >= devices() ? kInvalidDevice : (*device = ordinal, 0);
}
int cuDeviceGetName(char* name, int bytes, int) {
  return (std::snprintf(name, static_cast<size_t>(bytes), "Executing"), 0);
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 16: *value = 4; break;  // multiprocessors
    case 75: *value = 9; break;  // compute capability, major
    case 92:                     // streams wait for values
    case 93: *value = 1; break;  // of 64 bits, too
    default: *value = 0;
  }
  return 0;
}
int cuDevicePrimaryCtxRetain(void** made, int device) { return (*made = &contexts[device], 0); }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxGetCurrent(void** now) { return (*now = current.empty() ? nullptr : current.back(), 0); }
int cuCtxSetCurrent(void* wanted) {
  if (!current.empty()) current.pop_back();
  current.push_back(static_cast<Context*>(wanted));
  return 0;
}
int cuCtxPushCurrent_v2(void* pushed) { return (current.push_back(static_cast<Context*>(pushed)), 0); }
int cuCtxPopCurrent_v2(void** popped) {
  if (current.empty()) return kInvalidContext;
  *popped = current.back();
  current.pop_back();
  return 0;
}
int cuCtxSynchronize() { return current_device() < 0 ? kInvalidContext : (simulator::drain_all(), 0); }

// ---- Kernels are not run. The loader finds these entry points all the same.

int cuModuleLoadData(void**, const void*) { return kNotSupported; }
int cuModuleUnload(void*) { return kNotSupported; }
int cuModuleGetFunction(void**, void*, const char*) { return kNotSupported; }
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                   void**) {
  return kNotSupported;
}

// ---- Streams.

int cuStreamCreate(void** made, unsigned) {
  return current_device() < 0 ? kInvalidContext : (*made = make_stream(), 0);
}
int cuStreamDestroy_v2(void* stream) { return end_stream(stream) ? 0 : kInvalidHandle; }
int cuStreamQuery(void* handle) {
  Stream* const stream = find_stream(handle);
  if (stream == nullptr) return kInvalidHandle;
  return stream->is_idle() ? 0 : kNotReady;
}
int cuStreamSynchronize(void* handle) {
  Stream* const stream = find_stream(handle);
  if (stream == nullptr) return kInvalidHandle;
  stream->drain();
  return 0;
}
int cuStreamIsCapturing(void* handle, int* status) {
  Stream* const stream = find_stream(handle);
  return stream == nullptr ? kInvalidHandle : (*status = stream->capturing ? 1 : 0, 0);
}
int cuStreamWaitEvent(void* stream_handle, void* handle, unsigned) {
  const auto event = find_event(handle);
  Stream* const stream = find_stream(stream_handle);
  if (event == nullptr || stream == nullptr) return kInvalidHandle;
  if (const int refused = why_not(*stream); refused != 0) return refused;
  event->block(*stream);
  return 0;
}
int cuLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  return push(stream, [=] { function(data); }, true);
}

// ---- Events.

int cuEventCreate(void** made, unsigned) {
  return current_device() < 0 ? kInvalidContext : (*made = make_event(), 0);
}
int cuEventDestroy_v2(void* event) { return end_event(event) ? 0 : kInvalidHandle; }
int cuEventRecord(void* handle, void* stream_handle) {
  const auto event = find_event(handle);
  Stream* const stream = find_stream(stream_handle);
  if (event == nullptr || stream == nullptr) return kInvalidHandle;
  event->record(*stream);
  return 0;
}
int cuEventQuery(void* handle) {
  const auto event = find_event(handle);
  if (event == nullptr) return kInvalidHandle;
  return event->is_reached() ? 0 : kNotReady;
}
int cuEventSynchronize(void* handle) {
  const auto event = find_event(handle);
  if (event == nullptr) return kInvalidHandle;
  event->wait();
  return 0;
}
int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  const auto first = find_event(from), second = find_event(to);
  if (first == nullptr || second == nullptr) return kInvalidHandle;
  const int64_t began_ns = first->reached_ns(), ended_ns = second->reached_ns();
  if (began_ns == 0 || ended_ns == 0)
    return first->is_reached() && second->is_reached() ? kInvalidHandle : kNotReady;
  *milliseconds = static_cast<float>(ended_ns - began_ns) / 1e6f;
  return 0;
}

}  // extern "C"

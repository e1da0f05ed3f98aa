// SPDX-License-Identifier: Apache-2.0
// Entry points of the driver for memory, copies, and values that streams wait for and write.
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "core/memory.h"
#include "cuda_driver/handles.h"
#include "cuda_driver/memory.h"
#include "cuda_driver/results.h"

using namespace executing;

namespace {

std::atomic<uint64_t> bytes_down{0}, bytes_up{0}, unpinned_copies{0};

// Streams wait for and write device memory, or pinned memory of the host, which has one address for both.
std::byte* place_of(Address address, size_t bytes) {
  if (std::byte* const alias = alias_of(address, bytes); alias != nullptr) return alias;
  auto* const host = reinterpret_cast<std::byte*>(address);
  return is_pinned(host, bytes) ? host : nullptr;
}

// CU_STREAM_WAIT_VALUE_GEQ, EQ, AND, NOR.
template <class Value>
bool is_met(Value found, Value wanted, unsigned how) {
  switch (how & 3u) {
    case 0: return static_cast<std::make_signed_t<Value>>(found - wanted) >= 0;
    case 1: return found == wanted;
    case 2: return (found & wanted) != 0;
    default: return ~(found | wanted) != 0;
  }
}

template <class Value>
int wait_value(void* stream, Address address, Value wanted, unsigned how) {
  auto* const place = reinterpret_cast<Value*>(place_of(address, sizeof(Value)));
  if (place == nullptr || address % sizeof(Value) != 0) return kInvalidValue;
  Stream* const waiting = find_stream(stream);
  if (waiting == nullptr) return kInvalidHandle;
  if (const int refused = why_not(*waiting); refused != 0) return refused;
  waiting->push_wait([=] { return is_met(std::atomic_ref<Value>(*place).load(), wanted, how); });
  return 0;
}

template <class Value>
int write_value(void* stream, Address address, Value value) {
  auto* const place = reinterpret_cast<Value*>(place_of(address, sizeof(Value)));
  if (place == nullptr || address % sizeof(Value) != 0) return kInvalidValue;
  return push(stream, [=] { std::atomic_ref<Value>(*place).store(value); }, false);
}

int wait_for_stream(void* handle) {
  Stream* const stream = find_stream(handle);
  if (stream == nullptr) return kInvalidHandle;
  stream->drain();
  return 0;
}

}  // namespace

extern "C" {

// ---- For tests: what has been copied, and how often to or from memory that was not page-locked.

uint64_t fake_bytes_down() { return bytes_down; }
uint64_t fake_bytes_up() { return bytes_up; }
uint64_t fake_unpinned_copies() { return unpinned_copies; }

// ---- Memory.

int cuMemAlloc_v2(Address* made, size_t bytes) {
  if (current_device() < 0) return kInvalidContext;
  if (bytes == 0) return kInvalidValue;
  *made = take_device(bytes, current_device());
  return *made == 0 ? kOutOfMemory : 0;
}
int cuMemFree_v2(Address address) {
  if (alias_of(address, 1) == nullptr) return kInvalidValue;
  simulator::drain_all();  // as CUDA does
  return free_device(address) ? 0 : kInvalidValue;
}
int cuMemHostAlloc(void** made, size_t bytes, unsigned) {
  if (current_device() < 0) return kInvalidContext;
  if (bytes == 0) return kInvalidValue;
  *made = take_pinned(bytes);
  return *made == nullptr ? kOutOfMemory : 0;
}
int cuMemAllocHost_v2(void** made, size_t bytes) { return cuMemHostAlloc(made, bytes, 0); }
int cuMemFreeHost(void* block) { return free_pinned(block) ? 0 : kInvalidValue; }
int cuMemHostRegister_v2(void* begin, size_t bytes, unsigned) {
  if (current_device() < 0) return kInvalidContext;
  return bytes != 0 && add_registered(begin, bytes) ? 0 : kInvalidValue;
}
int cuMemHostUnregister(void* begin) { return remove_registered(begin) ? 0 : kInvalidValue; }
int cuMemHostGetDevicePointer_v2(Address* device, void* host, unsigned) {
  return is_pinned(host, 1) ? (*device = reinterpret_cast<Address>(host), 0) : kInvalidValue;
}
int cuPointerGetAttribute(void* value, int attribute, Address address) {
  const int device = device_of(address);
  if (device < 0) return kInvalidValue;
  if (attribute == 2) return (*static_cast<unsigned*>(value) = 2, 0);  // CU_MEMORYTYPE_DEVICE
  if (attribute == 9) return (*static_cast<int*>(value) = device, 0);
  return kNotSupported;
}

// ---- Copies and fills.

int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, void* stream) {
  const std::byte* const source = alias_of(from, bytes);
  if (source == nullptr) return kInvalidValue;
  simulator::poison(to, bytes);  // who reads too early sees it
  const int result = push(stream, [=] { std::memcpy(to, source, bytes); }, true);
  if (result != 0) return result;
  bytes_down += bytes;
  if (is_pinned(to, bytes)) return 0;
  ++unpinned_copies;
  return wait_for_stream(stream);
}
int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, void* stream) {
  std::byte* const target = alias_of(to, bytes);
  if (target == nullptr) return kInvalidValue;
  bytes_up += bytes;
  if (is_pinned(from, bytes)) return push(stream, [=] { std::memcpy(target, from, bytes); }, true);
  ++unpinned_copies;
  const auto* const begin = static_cast<const std::byte*>(from);
  const auto kept = std::make_shared<std::vector<std::byte>>(begin, begin + bytes);
  return push(stream, [=] { std::memcpy(target, kept->data(), bytes); }, true);
}
int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void* stream) {
  std::byte* const target = alias_of(to, bytes);
  const std::byte* const source = alias_of(from, bytes);
  if (target == nullptr || source == nullptr) return kInvalidValue;
  return push(stream, [=] { std::memmove(target, source, bytes); }, true);
}
int cuMemcpyDtoH_v2(void* to, Address from, size_t bytes) {
  const int result = cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr);
  return result != 0 ? result : wait_for_stream(nullptr);
}
int cuMemcpyHtoD_v2(Address to, const void* from, size_t bytes) {
  const int result = cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr);
  return result != 0 ? result : wait_for_stream(nullptr);
}
int cuMemsetD8Async(Address at, unsigned char value, size_t bytes, void* stream) {
  std::byte* const target = alias_of(at, bytes);
  if (target == nullptr) return kInvalidValue;
  return push(stream, [=] { std::memset(target, value, bytes); }, true);
}

// ---- Values that streams wait for and write.

int cuStreamWaitValue32_v2(void* stream, Address at, uint32_t value, unsigned how) {
  return wait_value(stream, at, value, how);
}
int cuStreamWaitValue64_v2(void* stream, Address at, uint64_t value, unsigned how) {
  return wait_value(stream, at, value, how);
}
int cuStreamWriteValue32_v2(void* stream, Address at, uint32_t value, unsigned) {
  return write_value(stream, at, value);
}
int cuStreamWriteValue64_v2(void* stream, Address at, uint64_t value, unsigned) {
  return write_value(stream, at, value);
}

}  // extern "C"

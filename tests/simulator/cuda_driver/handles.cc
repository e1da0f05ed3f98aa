// SPDX-License-Identifier: Apache-2.0
#include "cuda_driver/handles.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <set>

namespace executing {
namespace {

struct Known {
  std::mutex mutex;
  Stream& legacy = simulator::make_stream(true);
  std::set<void*> streams;
  std::map<void*, std::shared_ptr<Event>> events;
};
Known& known() {
  static Known& of_process = *new Known;
  return of_process;
}

Stream* own_stream() {
  thread_local Stream* const own = &simulator::make_stream(true);
  return own;
}

}  // namespace

Stream* find_stream(void* handle) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number <= 1) return &known().legacy;
  if (number == 2) return own_stream();
  const std::lock_guard<std::mutex> lock(known().mutex);
  return known().streams.contains(handle) ? static_cast<Stream*>(handle) : nullptr;
}

void* make_stream() {
  Stream& fresh = simulator::make_stream(false);
  const std::lock_guard<std::mutex> lock(known().mutex);
  known().streams.insert(&fresh);
  return &fresh;
}

bool end_stream(void* handle) {
  const std::lock_guard<std::mutex> lock(known().mutex);
  return known().streams.erase(handle) == 1;  // its jobs are done all the same, as with CUDA
}

std::shared_ptr<Event> find_event(void* handle) {
  const std::lock_guard<std::mutex> lock(known().mutex);
  const auto found = known().events.find(handle);
  return found == known().events.end() ? nullptr : found->second;
}

void* make_event() {
  auto fresh = std::make_shared<Event>();
  void* const handle = fresh.get();
  const std::lock_guard<std::mutex> lock(known().mutex);
  known().events[handle] = std::move(fresh);
  return handle;
}

bool end_event(void* handle) {
  const std::lock_guard<std::mutex> lock(known().mutex);
  return known().events.erase(handle) == 1;
}

}  // namespace executing

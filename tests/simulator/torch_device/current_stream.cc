// SPDX-License-Identifier: Apache-2.0
#include "current_stream.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace simulated {
namespace {

constexpr size_t kPool = 8;

thread_local c10::StreamId current = 0;

struct Known {
  std::mutex mutex;
  std::vector<simulator::Stream*> by_id;
  size_t next_of_pool = 0;

  Known() {
    for (size_t i = 0; i <= kPool; ++i) add();
  }
  c10::StreamId add() {
    simulator::Stream& made = simulator::make_stream(by_id.empty());
    made.push(
        [] {
          at::set_num_threads(1);
          thread_local const at::AutoDispatchBelowADInplaceOrView below_autograd;
        },
        false);
    made.drain();
    by_id.push_back(&made);
    return static_cast<c10::StreamId>(by_id.size() - 1);
  }
};

Known& known() {
  static Known& of_process = *new Known;
  return of_process;
}

}  // namespace

simulator::Stream& stream(c10::StreamId id) {
  const std::lock_guard<std::mutex> lock(known().mutex);
  return *known().by_id.at(static_cast<size_t>(id));
}

c10::StreamId stream_from_pool() {
  const std::lock_guard<std::mutex> lock(known().mutex);
  return static_cast<c10::StreamId>(1 + known().next_of_pool++ % kPool);
}

c10::StreamId new_stream() {
  const std::lock_guard<std::mutex> lock(known().mutex);
  return known().add();
}

bool wait_for_flag(int64_t id, void*, const uint32_t* word, uint32_t value) {
  stream(id).push_wait([flag = const_cast<uint32_t*>(word), value] {
    return std::atomic_ref<uint32_t>(*flag).load(std::memory_order_acquire) >= value;
  });
  return true;
}

bool write_flag(int64_t id, void*, uint32_t* word, uint32_t value) {
  stream(id).push([word, value] { std::atomic_ref<uint32_t>(*word).store(value, std::memory_order_release); },
                  false);
  return true;
}

c10::StreamId current_id() { return current; }
c10::StreamId exchange_current_id(c10::StreamId id) { return std::exchange(current, id); }
simulator::Stream& current_stream() { return stream(current); }

}  // namespace simulated

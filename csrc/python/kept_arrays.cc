// SPDX-License-Identifier: Apache-2.0
#include "python/kept_arrays.h"

#include <atomic>
#include <utility>

namespace braid {
namespace {

struct Kept {
  std::vector<pybind11::object> arrays;
  Kept* next = nullptr;
};

std::atomic<Kept*> dropped{nullptr};

// A list without a lock: a forked child may find it in the middle of this.
void drop(Kept* kept) {
  kept->next = dropped.load(std::memory_order_relaxed);
  while (!dropped.compare_exchange_weak(kept->next, kept, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

}  // namespace

std::shared_ptr<const void> keep_arrays(std::vector<pybind11::object> arrays) {
  let_dropped_arrays_go();
  return {new Kept{std::move(arrays)}, drop};
}

void let_dropped_arrays_go() {
  Kept* kept = dropped.exchange(nullptr, std::memory_order_acquire);
  while (kept != nullptr) {
    Kept* const next = kept->next;
    delete kept;
    kept = next;
  }
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/fd.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace braid {
namespace {

// The set of descriptors that are owned by an Fd, one bit each. It uses atomic words and no lock, because another
// thread may hold a lock when this one forks. A child keeps its copies of descriptors with larger numbers.
constexpr int kMostKnown = 1 << 20;
constexpr int kBitsPerWord = 64;
std::array<std::atomic<uint64_t>, kMostKnown / kBitsPerWord> owned{};

std::atomic<int> forks{0};

std::atomic<uint64_t>& word_of(int fd) { return owned[static_cast<size_t>(fd / kBitsPerWord)]; }
uint64_t bit_of(int fd) { return uint64_t{1} << (fd % kBitsPerWord); }

// Calls nothing but close(): in a child, the locks of other libraries may be held for ever.
void close_all_in_child() {
  forks.fetch_add(1, std::memory_order_relaxed);
  for (size_t i = 0; i < owned.size(); ++i) {
    for (uint64_t left = owned[i].exchange(0, std::memory_order_relaxed); left != 0; left &= left - 1) {
      ::close(static_cast<int>(i) * kBitsPerWord + std::countr_zero(left));
    }
  }
}

}  // namespace

Fd::Fd(int fd) : fd_(fd) {
  // Fails only if there is no memory; then children keep their copies.
  [[maybe_unused]] static const int registered = ::pthread_atfork(nullptr, nullptr, close_all_in_child);
  made_under_ = forks.load(std::memory_order_relaxed);
  if (fd >= 0 && fd < kMostKnown) word_of(fd).fetch_or(bit_of(fd), std::memory_order_relaxed);
}

void Fd::reset() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0 || made_under_ != forks.load(std::memory_order_relaxed)) return;
  // Before close(), after which another thread may get the number.
  if (fd < kMostKnown) word_of(fd).fetch_and(~bit_of(fd), std::memory_order_relaxed);
  ::close(fd);
}

}  // namespace braid

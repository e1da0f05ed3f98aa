// SPDX-License-Identifier: Apache-2.0
// How far apart are two cores just now? Passes a cache line between two pinned threads, and 128 KiB over a bounce buffer that
// is written through the caches, and past them. A virtual machine's cores may be moved under it, so it asks again and
// again.
//
//   g++ -std=c++20 -O2 -pthread -Icsrc bench/intra_host/core_to_core.cc -o build/core_to_core
//   build/core_to_core 0 1 40
#include <pthread.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/copy.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = 128 * 1024;
constexpr size_t kBounceBytes = 2 * 1024 * 1024;  // used from end to end in turn
constexpr int kRounds = 600;                      // of each way, per sample
constexpr int kStop = -1;

enum Way { kLine, kThrough, kPast, kWays };

alignas(128) std::atomic<int> asked{0};
alignas(128) std::atomic<int> answered{0};
alignas(4096) std::byte bounce[kBounceBytes];

void pin_to(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
}

Way way_of(int round) { return static_cast<Way>(round / kRounds % kWays); }

std::byte* place_of(int round) { return bounce + static_cast<size_t>(round) * kBytes % kBounceBytes; }

void answer_on(int core) {
  pin_to(core);
  std::vector<std::byte> target(kBytes);
  for (int round = 0;; ++round) {
    int seen;
    while ((seen = asked.load()) != round + 1 && seen != kStop) {
    }
    if (seen == kStop) return;
    if (way_of(round) != kLine) braid::copy_bytes(target.data(), place_of(round), kBytes);
    answered.store(round + 1);
  }
}

void put(Way way, std::byte* to, const std::byte* from) {
  if (way == kThrough) braid::copy_bytes(to, from, kBytes);
  if (way != kPast) return;
  braid::stream_bytes(to, from, kBytes);
  braid::end_of_stream();
}

double us(Clock::duration sum) { return std::chrono::duration<double, std::micro>(sum).count() / kRounds; }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: core_to_core CORE CORE SAMPLES\n");
    return 2;
  }
  std::thread other(answer_on, std::atoi(argv[2]));
  pin_to(std::atoi(argv[1]));
  const std::vector<std::byte> source(kBytes, std::byte{1});
  for (int round = 0; round < std::atoi(argv[3]) * kWays * kRounds;) {
    std::array<Clock::duration, kWays> putting{}, getting{};
    for (int i = 0; i < kWays * kRounds; ++i, ++round) {
      const Way way = way_of(round);
      const auto begin = Clock::now();
      put(way, place_of(round), source.data());
      const auto posted = Clock::now();
      asked.store(round + 1);
      while (answered.load() != round + 1) {
      }
      putting[way] += posted - begin;
      getting[way] += Clock::now() - posted;
    }
    std::printf(
        "line there and back %4.0f ns; 128 KiB put through the caches %5.1f us, got %5.1f; past them %5.1f, "
        "%5.1f\n",
        1e3 * us(getting[kLine]), us(putting[kThrough]), us(getting[kThrough]), us(putting[kPast]),
        us(getting[kPast]));
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
  }
  asked.store(kStop);
  other.join();
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// How far apart are two cores just now? Passes a cache line, and every other time 32 KiB, between two pinned threads.
// A virtual machine's cores may be moved under it, so it asks again and again.
//
//   g++ -O2 -pthread bench/intra_host/core_to_core.cc -o build/core_to_core && build/core_to_core 0 1 40
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr size_t kBytes = 32 * 1024;
constexpr int kRoundsPerSample = 20'000;
constexpr int kStop = -1;

alignas(128) std::atomic<int> asked{0};
alignas(128) std::atomic<int> answered{0};
alignas(4096) char stage[kBytes];

void pin_to(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
}

bool carries_bytes(int round) { return round % 2 == 0; }

void answer_on(int core) {
  pin_to(core);
  std::vector<char> target(kBytes);
  for (int round = 1;; ++round) {
    int seen;
    while ((seen = asked.load()) != round && seen != kStop) {
    }
    if (seen == kStop) return;
    if (carries_bytes(round)) std::memcpy(target.data(), stage, kBytes);
    answered.store(round);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: core_to_core CORE CORE SAMPLES\n");
    return 2;
  }
  std::thread other(answer_on, std::atoi(argv[2]));
  pin_to(std::atoi(argv[1]));
  const std::vector<char> source(kBytes, 1);
  int round = 0;
  for (int sample = 0; sample < std::atoi(argv[3]); ++sample) {
    double seconds[2] = {0, 0};
    for (int i = 0; i < kRoundsPerSample; ++i) {
      ++round;
      const auto begin = std::chrono::steady_clock::now();
      if (carries_bytes(round)) std::memcpy(stage, source.data(), kBytes);
      asked.store(round);
      while (answered.load() != round) {
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      seconds[carries_bytes(round)] += took.count();
    }
    std::printf("line there and back %4.0f ns; 32 KiB to a stage and out of it %5.2f us\n",
                seconds[0] / (kRoundsPerSample / 2) * 1e9, seconds[1] / (kRoundsPerSample / 2) * 1e6);
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
  }
  asked.store(kStop);
  other.join();
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// How fast are the codecs beside memcpy? Writes one line of JSON for each codec, operation and instruction set.
// Usage: codec_bench [MiB of floats] [rounds] [instruction set], 64, 15 and all that this CPU has when not given.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/instruction_set.h"
#include "bench/cpu_time.h"
#include "codec/codec.h"

namespace braid {
namespace {

template <class Work>
double seconds_of(Work work) {
  const double start = cpu_seconds();
  work();
  return cpu_seconds() - start;
}

double median(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

// Page-aligned, as large tensors are.
struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
template <class T>
struct Buffer {
  explicit Buffer(size_t n)
      : size(n), memory(static_cast<T*>(std::aligned_alloc(4096, (n * sizeof(T) + 4095) / 4096 * 4096))) {
    std::memset(memory.get(), 0, n * sizeof(T));
  }
  T* data() const { return memory.get(); }

  size_t size;
  std::unique_ptr<T, Free> memory;
};

struct Memory {
  explicit Memory(size_t n) : values(n), copy(n), residual(n), sum(n), message(3 * n) {}
  Buffer<float> values, copy, residual, sum;
  Buffer<std::byte> message;
};

// memcpy and the operation take turns; memcpy also drives the operation's data out of the caches.
template <class Work>
void measure(Memory& memory, int rounds, const char* set, const std::string& codec, const char* operation,
             Work work) {
  const size_t bytes = memory.values.size * sizeof(float);
  std::vector<double> seconds, ratios, copies;
  for (int round = -1; round < rounds; ++round) {
    const double copy = seconds_of([&] { std::memcpy(memory.copy.data(), memory.values.data(), bytes); });
    const double own = seconds_of(work);
    if (round < 0) continue;
    seconds.push_back(own);
    copies.push_back(copy);
    ratios.push_back(copy / own);
  }
  std::printf(
      "{\"codec\": \"%s\", \"operation\": \"%s\", \"instruction_set\": \"%s\", \"mib\": %zu, \"rounds\": %d, "
      "\"gb_per_s\": %.2f, \"memcpy_gb_per_s\": %.2f, \"of_memcpy\": %.3f}\n",
      codec.c_str(), operation, set, bytes >> 20, rounds, 1e-9 * static_cast<double>(bytes) / median(seconds),
      1e-9 * static_cast<double>(bytes) / median(copies), median(ratios));
  std::fflush(stdout);
}

void run(Memory& memory, int rounds, const char* set) {
  const size_t n = memory.values.size;
  for (const char* name : {"fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "qsgd", "sign", "top_k:0.001",
                           "top_k:0.01", "random_k:0.01"}) {
    const Codec codec = codec_from_text(name).value();
    std::fill_n(memory.residual.data(), n, 0.0f);
    const Bytes message(memory.message.data(), encoded_bytes(codec, n));
    measure(memory, rounds, set, name, "encode",
            [&] { encode(codec, memory.values.data(), n, 1, nullptr, 1, message); });
    measure(memory, rounds, set, name, "encode_scaled",
            [&] { encode(codec, memory.values.data(), n, 0.25f, nullptr, 1, message); });
    measure(memory, rounds, set, name, "encode_residual",
            [&] { encode(codec, memory.values.data(), n, 0.25f, memory.residual.data(), 1, message); });
    measure(memory, rounds, set, name, "decode", [&] {
      if (!decode(codec, message, memory.sum.data(), n).ok()) std::abort();
    });
    std::fill_n(memory.sum.data(), n, 0.0f);
    measure(memory, rounds, set, name, "decode_add", [&] {
      if (!decode_add(codec, message, memory.sum.data(), n).ok()) std::abort();
    });
  }
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  const size_t mib = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 64;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  const size_t n = (mib << 20) / sizeof(float);
  braid::Memory memory(n);
  // Numbers in a bell, as gradients lie: the sum of four even ones.
  std::mt19937 random(1);
  std::uniform_real_distribution<float> even(-1, 1);
  for (size_t i = 0; i < n; ++i) {
    memory.values.data()[i] = even(random) + even(random) + even(random) + even(random);
  }
  for (const char* set : {"avx512", "avx2", "baseline"}) {
    if (argc > 3 && std::strcmp(argv[3], set) != 0) continue;
    if (braid::set_instruction_set(set)) braid::run(memory, rounds, set);
  }
}

// SPDX-License-Identifier: Apache-2.0
// How fast is reduce() beside memcpy? Prints GB/s (1e9 bytes, every operand's bytes read plus those written) for
// each instruction set this CPU has. Usage: reduce_bench [sources], 2 when not given.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "base/instruction_set.h"
#include "bench/cpu_time.h"
#include "reduce/reduce.h"

namespace braid {
namespace {

// The fastest of 9 rounds of at least 40 ms each: what disturbs a round only makes it slower.
template <class Work>
double best_seconds(Work work) {
  double best = 1e30;
  for (int round = 0; round < 9; ++round) {
    int calls = 0;
    const double start = cpu_seconds();
    double elapsed = 0;
    do {
      work();
      ++calls;
      elapsed = cpu_seconds() - start;
    } while (elapsed < 0.04);
    best = std::min(best, elapsed / calls);
  }
  return best;
}

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<std::byte, Free>;

// Page-aligned, as gradients' buffers are, and filled: every byte 0x3c makes each float type a small normal
// number.
Buffer make_buffer(size_t bytes) {
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
  std::memset(buffer.get(), 0x3c, bytes);
  return buffer;
}

void run(size_t k, size_t bytes) {
  const Buffer target = make_buffer(bytes);
  std::vector<Buffer> buffers;
  std::vector<const std::byte*> sources;
  for (size_t i = 0; i < k; ++i) {
    buffers.push_back(make_buffer(bytes));
    sources.push_back(buffers.back().get());
  }
  const double copy = best_seconds([&] { std::memcpy(target.get(), sources[0], bytes); });
  std::printf("%7zu KiB  memcpy %6.1f\n", bytes / 1024, 2e-9 * bytes / copy);
  for (const std::string_view name : {"baseline", "avx2", "avx512"}) {
    if (!set_instruction_set(name)) continue;
    std::printf("%7zu KiB  %-9s", bytes / 1024, name.data());
    for (const DType dtype :
         {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat8E4M3Fn, DType::kInt32}) {
      const size_t count = bytes / size_of(dtype);
      const double apart = best_seconds([&] { reduce(dtype, ReduceOp::kSum, target.get(), sources, count); });
      std::byte* first = buffers[0].get();
      const double in_place = best_seconds([&] { reduce(dtype, ReduceOp::kSum, first, sources, count); });
      const double gigabytes = 1e-9 * (k + 1) * bytes;
      std::printf("  %s %5.1f (%5.1f)", name_of(dtype).data(), gigabytes / apart, gigabytes / in_place);
    }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  const size_t k = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 2;
  std::printf("GB/s of the sum of %zu sources into another buffer, and (into the first source)\n", k);
  for (const size_t bytes : {size_t{64} << 10, size_t{64} << 20}) braid::run(k, bytes);
}

// SPDX-License-Identifier: Apache-2.0
#include "reduce/reduce.h"

#include <atomic>

#include "reduce/convert.h"
#include "reduce/kernels.h"

namespace braid {
namespace {

struct InstructionSet {
  std::string_view name;
  const ReduceKernels* kernels;
  bool (*available)();
};

// Best first; the last is always available.
constexpr InstructionSet kInstructionSets[] = {
#if defined(BRAID_REDUCE_X86)
    {"avx512", &kAvx512ReduceKernels,
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
     }},
    {"avx2", &kAvx2ReduceKernels,
     [] {
       return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
     }},
#endif
    {"baseline", &kBaselineReduceKernels, [] { return true; }},
};

const InstructionSet* best_instruction_set() {
  const InstructionSet* set = kInstructionSets;
  while (!set->available()) ++set;
  return set;
}

std::atomic<const InstructionSet*>& active() {
  static std::atomic<const InstructionSet*> set{best_instruction_set()};
  return set;
}

const Conversions& conversions(DType dtype) {
  return active().load(std::memory_order_relaxed)->kernels->conversions[static_cast<size_t>(dtype)];
}

}  // namespace

void reduce(DType dtype, ReduceOp op, std::byte* target, std::span<const std::byte* const> sources, size_t count,
            int divisor) {
  if (op == ReduceOp::kAvg && divisor <= 1) op = ReduceOp::kSum;
  if (dtype == DType::kComplex64 || dtype == DType::kComplex128) {  // sums and averages go part by part
    dtype = dtype == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64;
    count *= 2;
  }
  const InstructionSet* set = active().load(std::memory_order_relaxed);
  set->kernels->of[static_cast<size_t>(dtype)][static_cast<size_t>(op)](target, sources.data(), sources.size(),
                                                                        count, divisor);
}

bool is_convertible(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

void to_floats(DType dtype, const std::byte* from, size_t count, float scale, float* out) {
  conversions(dtype).widen(from, count, scale, out);
}
void add_floats(DType dtype, const std::byte* from, size_t count, float scale, float* out) {
  conversions(dtype).widen_and_add(from, count, scale, out);
}
void from_floats(DType dtype, const float* values, size_t count, float scale, std::byte* to) {
  conversions(dtype).narrow(values, count, scale, to);
}

std::string_view reduce_instruction_set() { return active().load(std::memory_order_relaxed)->name; }

bool set_reduce_instruction_set(std::string_view name) {
  for (const InstructionSet& set : kInstructionSets) {
    if (set.name != name) continue;
    if (!set.available()) return false;
    active().store(&set, std::memory_order_relaxed);
    return true;
  }
  return false;
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "base/instruction_set.h"

#include <atomic>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace braid {
namespace {

// In the order of the enumeration.
constexpr std::string_view kNames[] = {"baseline", "avx2", "avx512"};

#if defined(__x86_64__)
// clang 14 knows no "f16c" in __builtin_cpu_supports.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

bool available(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::kAvx2) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  }
  if (set == InstructionSet::kAvx512) {
    return available(InstructionSet::kAvx2) && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
  }
#endif
  return set == InstructionSet::kBaseline;
}

InstructionSet widest() {
  for (int i = kInstructionSetCount - 1; i > 0; --i) {
    if (available(static_cast<InstructionSet>(i))) return static_cast<InstructionSet>(i);
  }
  return InstructionSet::kBaseline;
}

std::atomic<InstructionSet>& active() {
  static std::atomic<InstructionSet> set{widest()};
  return set;
}

}  // namespace

InstructionSet instruction_set() { return active().load(std::memory_order_relaxed); }

std::string_view instruction_set_name() { return kNames[static_cast<int>(instruction_set())]; }

bool set_instruction_set(std::string_view name) {
  for (int i = 0; i < kInstructionSetCount; ++i) {
    const auto set = static_cast<InstructionSet>(i);
    if (kNames[i] != name || !available(set)) continue;
    active().store(set, std::memory_order_relaxed);
    return true;
  }
  return false;
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "base/instruction_set.h"

#include <atomic>

namespace braid {
namespace {

// In the order of the enumeration.
constexpr std::string_view kNames[] = {"baseline", "avx2", "avx512"};

bool available(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::kAvx2) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
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

// SPDX-License-Identifier: Apache-2.0
// Which vector instructions the kernels of this process use: the widest this CPU has, unless told otherwise.
#pragma once

#include <string_view>

namespace braid {

enum class InstructionSet {
  kBaseline,  // what every CPU of the architecture has
  kAvx2,      // x86-64 with AVX2, FMA and F16C
  kAvx512,    // x86-64 with AVX-512 F, BW, VL and DQ
};
#if defined(__x86_64__)
inline constexpr int kInstructionSetCount = 3;
#else
inline constexpr int kInstructionSetCount = 1;
#endif

InstructionSet instruction_set();

// "avx512", "avx2" or "baseline".
std::string_view instruction_set_name();
// Forces one for tests and benchmarks; false (and no change) when this CPU lacks it.
bool set_instruction_set(std::string_view name);

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// The vector instructions that the kernels of this process use: the widest of this CPU, unless another set is
// forced.
#pragma once

#include <string_view>

namespace braid {

enum class InstructionSet {
  kBaseline,  // the instructions that every CPU of the architecture has
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
// Forces a set for tests and benchmarks. Returns false, and changes nothing, if this CPU lacks it.
bool set_instruction_set(std::string_view name);

}  // namespace braid

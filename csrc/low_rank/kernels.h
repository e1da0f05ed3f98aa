// SPDX-License-Identifier: Apache-2.0
// The table of kernels that each kernels_<instruction set>.cc gives to low_rank.cc and orthonormal.cc.
#pragma once

#include "low_rank/low_rank.h"

namespace braid {

struct LowRankKernels {
  decltype(&low_rank_project) project;
  decltype(&low_rank_gather) gather;
  decltype(&low_rank_rebuild) rebuild;
  decltype(&low_rank_settle) settle;
  float (*dot)(const float* a, const float* b, size_t n);
  void (*subtract)(float factor, const float* a, size_t n, float* from);  // from -= factor a
  void (*scale)(float factor, size_t n, float* values);
  uint32_t (*largest)(const float* values, size_t n);  // bits of the largest magnitude; of a NaN, if there is one
};

extern const LowRankKernels kBaselineLowRankKernels;
extern const LowRankKernels kAvx2LowRankKernels;    // x86-64 only
extern const LowRankKernels kAvx512LowRankKernels;  // x86-64 only

// The kernels for the instruction set that the process uses.
const LowRankKernels& low_rank_kernels();

}  // namespace braid

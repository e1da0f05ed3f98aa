// SPDX-License-Identifier: Apache-2.0
// The table of kernels that each kernels_<instruction set>.cc gives to stream.cc. A kernel works on one tile,
// which begins with a block. Memory may have any alignment.
#pragma once

#include "codec/codec.h"

namespace braid {

// What is encoded: values[i] * scale + addend[i]. Made where it is used, so that memory is read while the codes
// are computed.
struct Terms {
  const float* values;
  float scale;
  const float* addend;  // null: nothing is added
};

// left (null: forgotten; may be where values or addend are): n floats. scales, data: of the tile. `position`: of
// the tile's first element in its message.
using EncodeKernel = void (*)(const Terms& terms, size_t n, uint32_t position, uint32_t seed, std::byte* scales,
                              std::byte* data, float* left);
// Stores to `out`, or adds to it.
using DecodeKernel = void (*)(const std::byte* scales, const std::byte* data, size_t n, float* out);

struct DenseKernels {
  EncodeKernel encode;
  DecodeKernel decode;
  DecodeKernel add;
};

struct TopKCandidate {
  uint32_t bits;  // of the value, its sign too
  uint32_t position;
};

struct CodecKernels {
  DenseKernels of[kCodecKindCount];  // of the dense codecs, by kind
  // Writes those of n terms whose magnitude's bits are above the threshold to `out`, which has room for n, in
  // order, and returns how many. left[i], unless `left` is null, is what a term leaves behind that is not sent; it
  // may be where values or addend are.
  size_t (*sift)(const Terms& terms, size_t n, int32_t threshold, uint32_t position, TopKCandidate* out,
                 float* left);
};

extern const CodecKernels kBaselineCodecKernels;
extern const CodecKernels kAvx2CodecKernels;    // x86-64 only
extern const CodecKernels kAvx512CodecKernels;  // x86-64 only

// The kernels for the instruction set that the process uses.
const CodecKernels& codec_kernels();

}  // namespace braid

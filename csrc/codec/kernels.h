// SPDX-License-Identifier: Apache-2.0
// What the files built for one instruction set each give to stream.cc: a table of kernels over one tile, which begins
// with a block.
#pragma once

#include "codec/codec.h"

namespace braid {

// values, left (null: forgotten; may be values): n floats. scales, data: of the tile, at any alignment. `position`: of
// the tile's first element in its message.
using EncodeKernel = void (*)(const float* values, size_t n, uint32_t position, uint32_t seed, std::byte* scales,
                              std::byte* data, float* left);
// Stores to `out`, or adds to it.
using DecodeKernel = void (*)(const std::byte* scales, const std::byte* data, size_t n, float* out);

struct DenseKernels {
  EncodeKernel encode;
  DecodeKernel decode;
  DecodeKernel add;
};

// Of the dense codecs, by kind.
struct CodecKernels {
  DenseKernels of[kCodecKindCount];
};

extern const CodecKernels kBaselineCodecKernels;

}  // namespace braid

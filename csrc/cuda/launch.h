// SPDX-License-Identifier: Apache-2.0
// The codecs and the packing of many tensors into one run, on a device. Messages and what is left are, bit for bit, what
// encode() of codec/codec.h makes of the tensors' elements one after the other; the payload of a NaN in decoded or
// packed floats may differ.
//
// All of these only put work on the stream. Addresses are the device's; they must stay valid until the stream is past
// the work. A message begins at a multiple of 16; floats at a multiple of 4. kInvalidArgument otherwise.
#pragma once

#include "codec/codec.h"
#include "cuda/device.h"
#include "cuda/table.h"

namespace braid::cuda {

// out[i] = tensors[i] * scale; `out` has tensors.elements() floats.
Status pack(Device& device, const Table& tensors, float scale, float* out, Stream stream);
// tensors[i] = floats[i] * scale, rounded to nearest even; or += it.
Status unpack(Device& device, const float* floats, const Table& tensors, float scale, bool add, Stream stream);

// Memory at a multiple of 16 that encode() needs until the stream is past it; 0 for most codecs.
size_t encode_scratch_bytes(const Codec& codec, size_t elements, bool has_residual);

struct EncodeWork {
  float scale = 1;
  uint32_t seed = 0;
  float* residual = nullptr;  // may be null
  void* message = nullptr;
  size_t message_bytes = 0;
  void* scratch = nullptr;
};
// As braid::encode().
Status encode(Device& device, const Codec& codec, const Table& tensors, const EncodeWork& work, Stream stream);

struct DecodeWork {
  const void* message = nullptr;
  size_t message_bytes = 0;
  float scale = 1;
  bool add = false;
  // Gets 1 for a message that is not one of this codec and so many elements, of which the tensors see nothing; else 0.
  uint32_t* flag = nullptr;
};
// tensors[i] = decoded[i] * scale, rounded to nearest even; or += it.
Status decode(Device& device, const Codec& codec, const Table& tensors, const DecodeWork& work, Stream stream);

}  // namespace braid::cuda

// SPDX-License-Identifier: Apache-2.0
// Many tensors as one flat vector of floats, in order, that is never in memory as a whole: what is done with it reads
// and writes the tensors themselves, a tile at a time, in one pass.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/span.h"
#include "base/status.h"
#include "codec/codec.h"

namespace braid {

struct BucketTensor {
  std::byte* data = nullptr;  // contiguous, at any alignment; may be null when there are no elements
  size_t elements = 0;
  DType dtype = DType::kFloat32;  // or another of reduce/convert.h
};

// Elements [begin, end) of the flat vector. It may begin and end inside tensors.
struct BucketRange {
  size_t begin = 0;
  size_t end = 0;
};

// Holds addresses, no memory: REQUIRES that the tensors outlive it where they are. Immutable; any number of threads may
// work on ranges that do not overlap.
//
// Everything is checked before anything is written: kInvalidArgument leaves all memory as it was. That is for a range
// outside of the vector, for memory of another size than the range calls for or with tensors in it, and for a range
// of more than kMostEncodedElements to encode or decode. What the calling thread does with subnormal numbers, and how it
// rounds, changes no bit.
class Bucket {
 public:
  // kInvalidArgument for a null tensor, one that overlaps another, a dtype that convert.h lacks, and more elements than
  // can be counted.
  static Result<Bucket> create(std::vector<BucketTensor> tensors);

  size_t elements() const { return starts_.back(); }
  size_t tensors() const { return tensors_.size(); }

  // out[i] = float32(element) * scale.
  Status pack(BucketRange range, float scale, std::span<float> out) const;
  // The elements become flat[i] * scale, a float32, rounded to the tensor's dtype as by from_floats().
  Status unpack(std::span<const float> flat, BucketRange range, float scale) const;

  // As encode() of what pack(range, 1) gives: the message is of the range alone, and so is `residual`, which is empty or
  // of the range's length and overlaps neither the message nor a tensor.
  Status encode(const Codec& codec, BucketRange range, float scale, std::span<float> residual, uint32_t seed,
                Bytes message) const;
  // As unpack() of what decode() gives.
  Status decode(const Codec& codec, ConstBytes message, BucketRange range, float scale) const;

 private:
  class Walk;

  Bucket(std::vector<BucketTensor> tensors, std::vector<size_t> starts)
      : tensors_(std::move(tensors)), starts_(std::move(starts)) {}
  Status check(const std::string& what, BucketRange range, size_t elements) const;
  Status check_apart(const std::string& what, ConstBytes memory) const;
  Status check_codec(const std::string& what, const Codec& codec, BucketRange range, size_t message_bytes) const;

  std::vector<BucketTensor> tensors_;
  std::vector<size_t> starts_;  // of each tensor in the vector, and the end
};

}  // namespace braid

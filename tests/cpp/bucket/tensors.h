// SPDX-License-Identifier: Apache-2.0
// Tensors with memory of their own, for the tests of the bucket.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "bucket/bucket.h"
#include "reduce/convert.h"

namespace braid::testing {

// Each tensor's memory is a block of its own, begins at an odd address, and is just as long as it must be, so that a
// sanitizer sees whoever leaves it.
class Tensors {
 public:
  void add(DType dtype, size_t elements) {
    memory_.emplace_back(elements * size_of(dtype) + 1);
    table.push_back({memory_.back().data() + 1, elements, dtype});
  }
  // About normal numbers, of many magnitudes.
  void fill(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> number;
    for (const BucketTensor& tensor : table) {
      std::vector<float> values(tensor.elements);
      for (float& value : values) value = number(random) * static_cast<float>(1 << random() % 8);
      from_floats(tensor.dtype, values.data(), values.size(), 1, tensor.data);
    }
  }
  Bucket bucket() const { return Bucket::create(table).value(); }
  // One after another, each as a whole: what the bucket is held against.
  std::vector<float> flat() const {
    std::vector<float> all;
    for (const BucketTensor& tensor : table) {
      std::vector<float> values(tensor.elements);
      to_floats(tensor.dtype, tensor.data, values.size(), 1, values.data());
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  void assign(const std::vector<float>& flat, float scale) {
    const float* from = flat.data();
    for (const BucketTensor& tensor : table) {
      from_floats(tensor.dtype, from, tensor.elements, scale, tensor.data);
      from += tensor.elements;
    }
  }
  std::vector<std::vector<std::byte>> bytes() const { return memory_; }

  std::vector<BucketTensor> table;

 private:
  std::vector<std::vector<std::byte>> memory_;
};

inline constexpr DType kBucketDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kFloat16};

// Of all dtypes, in turns; with tensors of 0 and 1 elements, odd lengths, a tile and about a tile, and many tiny ones.
inline Tensors mixed_tensors() {
  Tensors tensors;
  size_t turn = 0;
  const auto add = [&](size_t elements) { tensors.add(kBucketDTypes[turn++ % 4], elements); };
  for (const size_t elements : {0, 1, 0, 7, 256, 4096, 4095, 1, 4097, 0, 333, 10007}) add(elements);
  for (int i = 0; i < 60; ++i) add(static_cast<size_t>(i % 5));
  add(1025);
  add(0);
  return tensors;
}

inline std::vector<Codec> all_codecs() {
  std::vector<Codec> codecs;
  for (const char* text :
       {"fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "qsgd", "sign", "top_k:0.01", "random_k:0.05"}) {
    codecs.push_back(codec_from_text(text).value());
  }
  return codecs;
}

}  // namespace braid::testing

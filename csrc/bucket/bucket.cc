// SPDX-License-Identifier: Apache-2.0
#include "bucket/bucket.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/float_environment.h"
#include "codec/stream.h"
#include "reduce/convert.h"

namespace braid {
namespace {

Status wrong(const std::string& what) { return {Code::kInvalidArgument, what}; }

bool overlap(ConstBytes a, ConstBytes b) {
  const std::less<> below;  // a total order of pointers, which < is not
  return !a.empty() && !b.empty() && below(a.data(), b.data() + b.size()) && below(b.data(), a.data() + a.size());
}

ConstBytes memory_of(const BucketTensor& tensor) { return {tensor.data, tensor.elements * size_of(tensor.dtype)}; }

Status overlapping(const std::vector<BucketTensor>& tensors) {
  std::vector<size_t> order;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].elements > 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::less<>()(tensors[a].data, tensors[b].data); });
  for (size_t i = 1; i < order.size(); ++i) {
    const auto [first, second] = std::minmax(order[i - 1], order[i]);
    if (!overlap(memory_of(tensors[first]), memory_of(tensors[second]))) continue;
    return wrong("bucket: tensors " + std::to_string(first) + " and " + std::to_string(second) +
                 " overlap in memory");
  }
  return {};
}

}  // namespace

// Goes through a range once, from tensor to tensor.
class Bucket::Walk {
 public:
  Walk(const Bucket& bucket, size_t begin) : bucket_(bucket), at_(begin) {
    const auto& starts = bucket.starts_;
    tensor_ = static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin()) - 1;
  }

  // The next n elements where they are floats of one tensor already; otherwise null, and nothing is passed.
  const float* next_floats(size_t n) {
    while (bucket_.starts_[tensor_ + 1] <= at_) ++tensor_;
    const BucketTensor& tensor = bucket_.tensors_[tensor_];
    const auto address = reinterpret_cast<uintptr_t>(tensor.data);
    if (tensor.dtype != DType::kFloat32 || address % alignof(float) != 0 ||
        bucket_.starts_[tensor_ + 1] - at_ < n) {
      return nullptr;
    }
    const auto* floats = reinterpret_cast<const float*>(tensor.data) + (at_ - bucket_.starts_[tensor_]);
    at_ += n;
    return floats;
  }

  // call(dtype, memory, done, count) for each tensor's part of the next n elements, of which `done` lie before it.
  template <class Call>
  void next(size_t n, const Call& call) {
    for (size_t done = 0; done < n;) {
      while (bucket_.starts_[tensor_ + 1] <= at_) ++tensor_;
      const BucketTensor& tensor = bucket_.tensors_[tensor_];
      const size_t count = std::min(n - done, bucket_.starts_[tensor_ + 1] - at_);
      call(tensor.dtype, tensor.data + (at_ - bucket_.starts_[tensor_]) * size_of(tensor.dtype), done, count);
      at_ += count;
      done += count;
    }
  }

 private:
  const Bucket& bucket_;
  size_t tensor_;
  size_t at_;  // in the flat vector
};

Result<Bucket> Bucket::create(std::vector<BucketTensor> tensors) {
  std::vector<size_t> starts = {0};
  for (const BucketTensor& tensor : tensors) {
    const std::string name = "bucket: tensor " + std::to_string(starts.size() - 1);
    if (!is_convertible(tensor.dtype)) {
      return wrong(name + " is of " + std::string(name_of(tensor.dtype)) +
                   "; there are float64, float32, float16 and bfloat16");
    }
    if (tensor.data == nullptr && tensor.elements > 0) {
      return wrong(name + " has " + std::to_string(tensor.elements) + " elements at a null address");
    }
    constexpr size_t kMost = std::numeric_limits<ptrdiff_t>::max();  // bytes, as everywhere in C++
    if (tensor.elements > kMost / sizeof(double) || starts.back() > kMost / sizeof(double) - tensor.elements) {
      return wrong(name + " brings the bucket to more elements than can be counted");
    }
    starts.push_back(starts.back() + tensor.elements);
  }
  if (Status status = overlapping(tensors); !status.ok()) return status;
  return Bucket(std::move(tensors), std::move(starts));
}

Status Bucket::check(const std::string& what, BucketRange range, size_t elements) const {
  if (range.begin > range.end || range.end > this->elements()) {
    return wrong("bucket " + what + ": the range " + std::to_string(range.begin) + " to " +
                 std::to_string(range.end) + " is not within " + std::to_string(this->elements()) + " elements");
  }
  if (elements != range.end - range.begin) {
    return wrong("bucket " + what + ": " + std::to_string(elements) + " floats for a range of " +
                 std::to_string(range.end - range.begin));
  }
  return {};
}

Status Bucket::check_apart(const std::string& what, ConstBytes memory) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (overlap(memory, memory_of(tensors_[i]))) {
      return wrong("bucket " + what + " shares memory with tensor " + std::to_string(i));
    }
  }
  return {};
}

Status Bucket::check_codec(const std::string& what, const Codec& codec, BucketRange range,
                           size_t message_bytes) const {
  const size_t n = range.end - range.begin;
  if (n > kMostEncodedElements) {
    return wrong("bucket " + what + ": " + std::to_string(n) + " elements are more than one message takes, " +
                 std::to_string(kMostEncodedElements));
  }
  if (message_bytes != encoded_bytes(codec, n)) {
    return wrong("bucket " + what + ": a message of " + std::to_string(message_bytes) + " bytes, but " +
                 to_text(codec) + " takes " + std::to_string(encoded_bytes(codec, n)) + " for " +
                 std::to_string(n) + " elements");
  }
  return {};
}

Status Bucket::pack(BucketRange range, float scale, std::span<float> out) const {
  if (Status status = check("pack", range, out.size()); !status.ok()) return status;
  if (Status status = check_apart("pack: out", std::as_bytes(out)); !status.ok()) return status;
  const PlainFloats plain;
  Walk(*this, range.begin).next(out.size(), [&](DType dtype, const std::byte* from, size_t done, size_t count) {
    to_floats(dtype, from, count, scale, out.data() + done);
  });
  return {};
}

Status Bucket::unpack(std::span<const float> flat, BucketRange range, float scale) const {
  if (Status status = check("unpack", range, flat.size()); !status.ok()) return status;
  if (Status status = check_apart("unpack: the flat vector", std::as_bytes(flat)); !status.ok()) return status;
  const PlainFloats plain;
  Walk(*this, range.begin).next(flat.size(), [&](DType dtype, std::byte* to, size_t done, size_t count) {
    from_floats(dtype, flat.data() + done, count, scale, to);
  });
  return {};
}

Status Bucket::encode(const Codec& codec, BucketRange range, float scale, std::span<float> residual, uint32_t seed,
                      Bytes message) const {
  const size_t n = range.end - range.begin;
  if (Status status = check("encode", range, residual.empty() ? n : residual.size()); !status.ok()) return status;
  if (Status status = check_codec("encode", codec, range, message.size()); !status.ok()) return status;
  if (Status status = check_apart("encode: the residual", std::as_bytes(residual)); !status.ok()) return status;
  if (Status status = check_apart("encode: the message", message); !status.ok()) return status;
  if (overlap(std::as_bytes(residual), message)) return wrong("bucket encode: the residual overlaps the message");

  const PlainFloats plain;
  // A tile within one tensor of floats is encoded from there. Others are brought together where their residual is, if
  // there is one.
  const bool adds = !residual.empty();
  float no_residual[kTileElements];
  Encoder encoder(codec, n, seed, adds ? residual.data() : nullptr, message);
  Walk walk(*this, range.begin);
  for (size_t begin = 0; begin < n; begin += kTileElements) {
    const size_t tile_elements = std::min(kTileElements, n - begin);
    float* const tile = adds ? residual.data() + begin : no_residual;
    if (const float* floats = walk.next_floats(tile_elements)) {
      encoder.put_sums(floats, scale, adds ? tile : nullptr, tile_elements);
      continue;
    }
    walk.next(tile_elements, [&](DType dtype, const std::byte* from, size_t done, size_t count) {
      (adds ? add_floats : to_floats)(dtype, from, count, scale, tile + done);
    });
    encoder.put(tile, tile_elements);
  }
  encoder.finish();
  return {};
}

Status Bucket::decode(const Codec& codec, ConstBytes message, BucketRange range, float scale) const {
  const size_t n = range.end - range.begin;
  if (Status status = check("decode", range, n); !status.ok()) return status;
  if (Status status = check_codec("decode", codec, range, message.size()); !status.ok()) return status;
  if (Status status = check_apart("decode: the message", message); !status.ok()) return status;
  auto decoder = Decoder::open(codec, message, n);
  if (!decoder.ok()) return decoder.status();
  const PlainFloats plain;
  float tile[kTileElements];
  Walk walk(*this, range.begin);
  for (size_t begin = 0; begin < n; begin += kTileElements) {
    const size_t tile_elements = std::min(kTileElements, n - begin);
    decoder.value().take(tile, tile_elements);
    walk.next(tile_elements, [&](DType dtype, std::byte* to, size_t done, size_t count) {
      from_floats(dtype, tile + done, count, scale, to);
    });
  }
  return {};
}

}  // namespace braid

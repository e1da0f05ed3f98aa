// SPDX-License-Identifier: Apache-2.0
#include "executor/coding.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/float_environment.h"
#include "codec/formulas.h"
#include "codec/stream.h"
#include "reduce/convert.h"

namespace braid {
namespace {

// Rounded up, so that the next message begins at a cache line.
size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

Status from_rank(Node rank, const Status& status) {
  if (status.ok()) return status;
  return {Code::kMismatch, "rank " + std::to_string(rank) + " sent what cannot be read: " + status.message(),
          rank};
}

// Calls visit(begin, n) for each tile of `elements` elements.
template <class Visit>
void for_each_tile(size_t elements, const Visit& visit) {
  for (size_t begin = 0; begin < elements; begin += kTileElements) {
    visit(begin, std::min(kTileElements, elements - begin));
  }
}

// 0 if the difference is not finite.
float remainder(float wanted, float given) {
  const float left = wanted - given;
  return std::isfinite(left) ? left : 0;
}

}  // namespace

Coding::Coding(const VerifiedSchedule& schedule, Node node, const Operands& operands, const Layout& layout,
               std::vector<int> hosts)
    : node_(node),
      dtype_(operands.dtype),
      layout_(layout),
      sends_sums_(is_vector(schedule.schedule().collective.kind)),
      hosts_(std::move(hosts)),
      lossy_(*operands.lossy),
      scale_(operands.op == ReduceOp::kAvg ? 1.0f / static_cast<float>(schedule.schedule().collective.ranks)
                                           : 1.0f) {
  if (layout.segments() == 0) return;
  // All messages of a segment may be in memory at once. The first segment has the largest chunks. Rounding can
  // make a chunk of another segment one element larger.
  const auto bytes_of = [&](const Ref& ref) { return layout.read(ref, 0, nullptr).size() + size_of(dtype_); };
  const auto add_message = [&](const Ref& ref) {
    segment_bytes_ += padded(encoded_bytes(lossy_.codec, elements(bytes_of(ref))));
  };
  for (const Round& round : schedule.schedule().programs[static_cast<size_t>(node)]) {
    for (const Step& step : round) {
      if ((step.op == Op::kSend || step.op == Op::kRecv) && is_coded(step.peer)) add_message(step.target);
      if (is_handed_over(step)) segment_bytes_ += padded(bytes_of(step.target));
      for (const Source& source : step.sources) {
        if (source.is_remote() && is_coded(source.from)) add_message(step.target);
      }
      if (sends_sums_ && is_coded(step)) add_message(step.target);
    }
  }
}

bool Coding::is_coded(const Step& step) const {
  return std::any_of(step.sources.begin(), step.sources.end(),
                     [&](const Source& source) { return source.is_remote() && is_coded(source.from); });
}

bool Coding::is_handed_over(const Step& step) const {
  return lossy_.residual != nullptr && step.op == Op::kSend && step.target.buffer == Buffer::kInput &&
         !is_coded(step.peer);
}

Bytes Coding::take_message(CodedSegment& segment, size_t bytes) const {
  return take(segment, encoded_bytes(lossy_.codec, elements(bytes)));
}

Bytes Coding::take(CodedSegment& segment, size_t bytes) const {
  std::byte* const at = segment.free_;
  segment.free_ += padded(bytes);
  return {at, bytes};
}

float* Coding::residual_at(const Ref& ref, int64_t number) const {
  if (lossy_.residual == nullptr) return nullptr;
  // The residual covers the input. The only output block of a reduce_scatter is the input block of this node.
  const bool is_own_block = !sends_sums_ && ref.buffer == Buffer::kOutput;
  return lossy_.residual + elements(layout_.place(is_own_block ? Ref{Buffer::kInput, node_, 1} : ref, number));
}

// The same on all ranks. So random_k messages that are added up leave out the same elements.
uint32_t Coding::seed_of(const Ref& ref, int64_t number) const {
  const uint32_t place =
      formula::mixed(static_cast<uint32_t>(number) * 0x9e3779b9u + static_cast<uint32_t>(ref.first));
  return formula::mixed(lossy_.seed ^ place);
}

Bytes Coding::landing(CodedSegment& segment, const Step& step, size_t source, Bytes target) const {
  const Bytes message = take_message(segment, target.size());
  segment.arrivals_.push_back({&step, source, message});
  return message;
}

ConstBytes Coding::outgoing(CodedSegment& segment, const Step& step, int64_t number, ConstBytes values) const {
  for (const auto& [ref, message] : segment.sums_) {
    if (ref == step.target) return message;
  }
  const Bytes message = take_message(segment, values.size());
  uint32_t seed = seed_of(step.target, number);
  // Unbiased codecs need random numbers that are independent between ranks.
  if (traits(lossy_.codec.kind).is_unbiased) seed = formula::mixed(seed + static_cast<uint32_t>(node_));
  const PlainFloats plain;
  float* const kept = residual_at(step.target, number);
  Encoder encoder(lossy_.codec, elements(values.size()), seed, kept, message);
  float tile[kTileElements];
  for_each_tile(elements(values.size()), [&](size_t begin, size_t n) {
    encoder.put_sums(floats_at(values.data(), begin, n, tile), scale_, kept == nullptr ? nullptr : kept + begin,
                     n);
  });
  encoder.finish();
  return message;
}

ConstBytes Coding::handed_over(CodedSegment& segment, const Step& step, int64_t number, ConstBytes values) const {
  const PlainFloats plain;  // needed for the comparison with 0, too
  const size_t count = elements(values.size());
  float* const kept = residual_at(step.target, number);
  const auto is_zero = [](float left) { return left == 0; };
  if (std::all_of(kept, kept + count, is_zero))
    return values;  // the usual case: only a change of plan leaves a residual
  const Bytes sum = take(segment, values.size());
  float tile[kTileElements];
  for_each_tile(count, [&](size_t begin, size_t n) {
    to_floats(dtype_, at(values.data(), begin), n, 1, tile);
    for (size_t i = 0; i < n; ++i) tile[i] += std::exchange(kept[begin + i], 0.0f) / scale_;
    put(tile, n, at(sum.data(), begin), kept + begin, scale_);
  });
  return sum;
}

Status Coding::receive(CodedSegment& segment, const Step& step, Bytes target) const {
  for (const CodedSegment::Arrival& arrival : segment.arrivals_) {
    if (arrival.step != &step) continue;
    return from_rank(step.peer, decode_to(arrival.message, target, nullptr));
  }
  return {};  // no message was expected
}

Status Coding::reduce(CodedSegment& segment, const Step& step, int64_t number,
                      std::span<const std::byte* const> plain, Bytes target) const {
  const PlainFloats plain_floats;
  const size_t count = elements(target.size());
  std::vector<Decoder> arrived;
  for (const CodedSegment::Arrival& arrival : segment.arrivals_) {
    if (arrival.step != &step) continue;
    auto decoder = Decoder::open(lossy_.codec, arrival.message, count);
    if (!decoder.ok()) return from_rank(step.sources[arrival.source].from, decoder.status());
    arrived.push_back(std::move(decoder).value());
  }
  float* const kept = residual_at(step.target, number);
  Bytes message;
  std::optional<Encoder> encoder;
  if (sends_sums_) {
    message = take_message(segment, target.size());
    uint32_t seed = seed_of(step.target, number);
    if (traits(lossy_.codec.kind).is_unbiased) seed = formula::mixed(~seed);
    encoder.emplace(lossy_.codec, count, seed, kept, message);
  }
  float sum[kTileElements];
  for_each_tile(count, [&](size_t begin, size_t n) {
    std::fill_n(sum, n, 0.0f);
    for (size_t i = 0; i < plain.size(); ++i) {
      (i == 0 ? to_floats : add_floats)(dtype_, at(plain[i], begin), n, 1, sum);
    }
    for (size_t i = 0; i < n; ++i) sum[i] *= scale_;
    for (Decoder& decoder : arrived) decoder.add(sum, n);
    float* const left = kept == nullptr ? nullptr : kept + begin;
    if (encoder) {
      encoder->put_sums(sum, 1, left, n);
      return;
    }
    if (left != nullptr && dtype_ != DType::kFloat32) {
      for (size_t i = 0; i < n; ++i) sum[i] += std::exchange(left[i], 0.0f);
    }
    put(sum, n, at(target.data(), begin), left);
  });
  if (!encoder) return {};
  encoder->finish();
  segment.sums_.emplace_back(step.target, message);
  return decode_to(message, target, kept);
}

const float* Coding::floats_at(const std::byte* values, size_t begin, size_t n, float* tile) const {
  if (dtype_ == DType::kFloat32) return reinterpret_cast<const float*>(at(values, begin));
  to_floats(dtype_, at(values, begin), n, 1, tile);
  return tile;
}

void Coding::put(const float* values, size_t n, std::byte* to, float* kept, float scale) const {
  from_floats(dtype_, values, n, 1, to);
  if (kept == nullptr || dtype_ == DType::kFloat32) return;
  float given[kTileElements];
  to_floats(dtype_, to, n, 1, given);
  for (size_t i = 0; i < n; ++i) kept[i] += remainder(values[i], given[i]) * scale;
}

Status Coding::decode_to(ConstBytes message, Bytes target, float* kept) const {
  const size_t count = elements(target.size());
  if (dtype_ == DType::kFloat32) {
    return decode(lossy_.codec, message, reinterpret_cast<float*>(target.data()), count);
  }
  auto decoder = Decoder::open(lossy_.codec, message, count);
  if (!decoder.ok()) return decoder.status();
  const PlainFloats plain;
  float tile[kTileElements];
  for_each_tile(count, [&](size_t begin, size_t n) {
    decoder.value().take(tile, n);
    put(tile, n, at(target.data(), begin), kept == nullptr ? nullptr : kept + begin);
  });
  return {};
}

}  // namespace braid

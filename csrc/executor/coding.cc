// SPDX-License-Identifier: Apache-2.0
#include "executor/coding.h"

#include <algorithm>
#include <string>

#include "base/float_environment.h"
#include "codec/formulas.h"
#include "reduce/reduce.h"

namespace braid {
namespace {

// The next message begins at a cache line.
size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

const float* floats(const std::byte* bytes) { return reinterpret_cast<const float*>(bytes); }
float* floats(std::byte* bytes) { return reinterpret_cast<float*>(bytes); }
size_t elements(size_t bytes) { return bytes / sizeof(float); }

Status from_rank(Node rank, const Status& status) {
  if (status.ok()) return status;
  return {Code::kMismatch, "rank " + std::to_string(rank) + " sent what cannot be read: " + status.message(),
          rank};
}

}  // namespace

Coding::Coding(const VerifiedSchedule& schedule, Node node, const Operands& operands, const Layout& layout,
               std::vector<int> hosts)
    : node_(node),
      layout_(layout),
      sends_sums_(is_vector(schedule.schedule().collective.kind)),
      hosts_(std::move(hosts)),
      lossy_(*operands.lossy),
      scale_(operands.op == ReduceOp::kAvg ? 1.0f / static_cast<float>(schedule.schedule().collective.ranks)
                                           : 1.0f) {
  if (layout.segments() == 0) return;
  // Everything may be there at once. Of all segments the first has the largest chunks, but for one element by
  // rounding.
  const auto float_bytes = [&](const Ref& ref) { return layout.read(ref, 0, nullptr).size() + sizeof(float); };
  const auto add_message = [&](const Ref& ref) {
    segment_bytes_ += padded(encoded_bytes(lossy_.codec, elements(float_bytes(ref))));
  };
  for (const Round& round : schedule.schedule().programs[static_cast<size_t>(node)]) {
    for (const Step& step : round) {
      if ((step.op == Op::kSend || step.op == Op::kRecv) && is_coded(step.peer)) add_message(step.target);
      if (is_handed_over(step)) segment_bytes_ += padded(float_bytes(step.target));
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

Bytes Coding::take_message(CodedSegment& segment, size_t float_bytes) const {
  return take(segment, encoded_bytes(lossy_.codec, elements(float_bytes)));
}

Bytes Coding::take(CodedSegment& segment, size_t bytes) const {
  std::byte* const at = segment.free_;
  segment.free_ += padded(bytes);
  return {at, bytes};
}

float* Coding::residual_at(const Ref& ref, int64_t number) const {
  return lossy_.residual == nullptr ? nullptr : lossy_.residual + elements(layout_.place(ref, number));
}

// The same on all ranks: messages of random_k that are added up leave out the same elements.
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
  // Random numbers of one rank must tell nothing of another's.
  if (traits(lossy_.codec.kind).is_unbiased) seed = formula::mixed(seed + static_cast<uint32_t>(node_));
  encode(lossy_.codec, floats(values.data()), elements(values.size()), scale_, residual_at(step.target, number),
         seed, message);
  return message;
}

ConstBytes Coding::handed_over(CodedSegment& segment, const Step& step, int64_t number, ConstBytes values) const {
  const PlainFloats plain;  // also to tell what is 0
  const size_t count = elements(values.size());
  float* const kept = residual_at(step.target, number);
  const auto is_zero = [](float left) { return left == 0; };
  if (std::all_of(kept, kept + count, is_zero)) return values;  // nearly always: only a change of plan leaves any
  const Bytes sum = take(segment, values.size());
  for (size_t i = 0; i < count; ++i) {
    floats(sum.data())[i] = floats(values.data())[i] + kept[i] / scale_;
    kept[i] = 0;
  }
  return sum;
}

Status Coding::receive(CodedSegment& segment, const Step& step, Bytes target) const {
  for (const CodedSegment::Arrival& arrival : segment.arrivals_) {
    if (arrival.step != &step) continue;
    return from_rank(step.peer,
                     decode(lossy_.codec, arrival.message, floats(target.data()), elements(target.size())));
  }
  return {};  // nothing was to come
}

Status Coding::reduce(CodedSegment& segment, const Step& step, int64_t number,
                      std::span<const std::byte* const> plain, Bytes target) const {
  const PlainFloats plain_floats;
  const size_t count = elements(target.size());
  float* const sum = floats(target.data());
  if (plain.empty()) std::fill_n(sum, count, 0.0f);
  if (plain.size() > 1) braid::reduce(DType::kFloat32, ReduceOp::kSum, target.data(), plain, count);
  const float* const added = plain.size() == 1 ? floats(plain[0]) : sum;
  for (size_t i = 0; i < count; ++i) sum[i] = added[i] * scale_;
  for (const CodedSegment::Arrival& arrival : segment.arrivals_) {
    if (arrival.step != &step) continue;
    if (Status bad = decode_add(lossy_.codec, arrival.message, sum, count); !bad.ok()) {
      return from_rank(step.sources[arrival.source].from, bad);
    }
  }
  if (!sends_sums_) return {};
  const Bytes message = take_message(segment, target.size());
  uint32_t seed = seed_of(step.target, number);
  if (traits(lossy_.codec.kind).is_unbiased) seed = formula::mixed(~seed);
  encode(lossy_.codec, sum, count, 1.0f, residual_at(step.target, number), seed, message);
  segment.sums_.emplace_back(step.target, message);
  return decode(lossy_.codec, message, sum, count);
}

}  // namespace braid

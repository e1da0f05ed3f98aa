// SPDX-License-Identifier: Apache-2.0
#include "codec/stream.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/instruction_set.h"
#include "codec/formulas.h"
#include "codec/kernels.h"

namespace braid {
namespace {

// Indexed by InstructionSet.
constexpr const CodecKernels* kKernels[kInstructionSetCount] = {
    &kBaselineCodecKernels,
#if defined(__x86_64__)
    &kAvx2CodecKernels,
    &kAvx512CodecKernels,
#endif
};

const DenseKernels& dense_kernels(CodecKind kind) { return codec_kernels().of[static_cast<size_t>(kind)]; }

// The offset in the plane of scales of the tile that begins at element `first`.
size_t scale_offset(const Codec& codec, size_t first) {
  return first / static_cast<size_t>(traits(codec.kind).block_elements) * sizeof(float);
}
size_t data_offset(const Codec& codec, size_t first) {
  switch (codec.kind) {
    case CodecKind::kFloat16:
    case CodecKind::kBFloat16: return 2 * first;
    case CodecKind::kInt4: return first / 2;
    case CodecKind::kSign: return first / 8;
    default: return first;
  }
}

uint32_t chosen(const Codec& codec, uint32_t seed, size_t stretch, size_t elements) {
  const size_t begin = stretch * codec.every;
  const size_t length = std::min<size_t>(codec.every, elements - begin);
  return static_cast<uint32_t>(begin) +
         formula::chosen_of(seed, static_cast<uint32_t>(stretch), static_cast<uint32_t>(length));
}

void zero_padding(const Codec& codec, const MessageLayout& layout, Bytes out) {
  const size_t planes[][2] = {
      {layout.scales_at + layout.scale_count * sizeof(float), layout.scale_count > 0 ? layout.data_at : 0},
      {layout.positions_at + layout.entries * sizeof(uint32_t),
       codec.kind == CodecKind::kTopK ? layout.data_at : 0},
      {layout.data_at + layout.data_bytes, layout.bytes},
  };
  for (const auto& [begin, end] : planes) {
    if (begin < end) std::memset(out.data() + begin, 0, end - begin);
  }
}

}  // namespace

const CodecKernels& codec_kernels() { return *kKernels[static_cast<int>(instruction_set())]; }

Encoder::Encoder(const Codec& codec, size_t elements, uint32_t seed, float* left, Bytes out)
    : codec_(codec),
      layout_(message_layout(codec, elements)),
      elements_(elements),
      seed_(seed),
      left_(left),
      out_(out) {
  const MessageHeader header = header_for(codec, elements, seed);
  std::memcpy(out_.data(), &header, sizeof header);
  zero_padding(codec_, layout_, out_);
  if (codec_.kind == CodecKind::kTopK) selection_.emplace(layout_.entries);
}

void Encoder::put_sums(const float* values, float scale, const float* addend, size_t n) {
  const Terms terms{values, scale, addend};
  float* left = left_ == nullptr ? nullptr : left_ + done_;
  if (traits(codec_.kind).is_sparse) {
    put_sparse(terms, n, left);
  } else {
    dense_kernels(codec_.kind)
        .encode(terms, n, static_cast<uint32_t>(done_), seed_,
                out_.data() + layout_.scales_at + scale_offset(codec_, done_),
                out_.data() + layout_.data_at + data_offset(codec_, done_), left);
  }
  done_ += n;
}

void Encoder::put_sparse(const Terms& terms, size_t n, float* left) {
  if (selection_) return selection_->put(terms, n, left);
  // `odd` gets what is not finite, which is not in `left`. Memory is read fastest in order, so the chosen ones are
  // looked up after that.
  TopKCandidate odd[kTileElements];
  const size_t odd_count =
      codec_kernels().sift(terms, n, formula::kInfinityBits - 1, static_cast<uint32_t>(done_), odd, left);
  const auto send = [this](size_t entry, float value) {
    std::memcpy(out_.data() + layout_.data_at + entry * sizeof value, &value, sizeof value);
  };
  for (; entry_ < layout_.entries; ++entry_) {
    const size_t position = chosen(codec_, seed_, entry_, elements_);
    if (position >= done_ + n) break;
    const size_t at = position - done_;
    float value = 0;
    if (left != nullptr) {
      value = std::exchange(left[at], 0.0f);
    } else {
      value = terms.values[at] * terms.scale;
      if (terms.addend != nullptr) value += terms.addend[at];
    }
    if (entry_ != odd_entry_) send(entry_, value);
  }
  for (const TopKCandidate& one : std::span(odd, odd_count)) {
    const size_t entry = one.position / codec_.every;
    const bool alone = entry != odd_entry_ && one.position == chosen(codec_, seed_, entry, elements_);
    send(entry, alone ? formula::sent_of(formula::float_of(one.bits)) : formula::float_of(formula::kNanBits));
    odd_entry_ = entry;
  }
}

void Encoder::finish() {
  if (!selection_) return;
  std::byte* position = out_.data() + layout_.positions_at;
  std::byte* value = out_.data() + layout_.data_at;
  for (const TopKCandidate& candidate : selection_->finish()) {
    const float sent = formula::sent_of(formula::float_of(candidate.bits));
    std::memcpy(position, &candidate.position, sizeof(uint32_t));
    std::memcpy(value, &sent, sizeof(float));
    position += sizeof(uint32_t);
    value += sizeof(float);
    if (left_ != nullptr) left_[candidate.position] = 0;
  }
}

Result<Decoder> Decoder::open(const Codec& codec, ConstBytes message, size_t elements) {
  const auto header = read_header(codec, message, elements);
  if (!header.ok()) return header.status();
  Decoder decoder(codec, message, elements, header.value().seed);
  if (codec.kind == CodecKind::kTopK) {
    int64_t last = -1;
    for (size_t i = 0; i < decoder.layout_.entries; ++i) {
      uint32_t position;
      std::memcpy(&position, message.data() + decoder.layout_.positions_at + i * sizeof position, sizeof position);
      if (position <= last || position >= elements) {
        return Status(Code::kInvalidArgument, to_text(codec) + " message of " + std::to_string(elements) +
                                                  " elements: its positions are out of order or range");
      }
      last = position;
    }
  }
  return decoder;
}

void Decoder::take(float* out, size_t n) {
  if (traits(codec_.kind).is_sparse) {
    std::memset(out, 0, n * sizeof(float));
    take_sparse(out, n);
  } else {
    dense_kernels(codec_.kind)
        .decode(message_.data() + layout_.scales_at + scale_offset(codec_, done_),
                message_.data() + layout_.data_at + data_offset(codec_, done_), n, out);
  }
  done_ += n;
}

void Decoder::add(float* into, size_t n) {
  if (traits(codec_.kind).is_sparse) {
    take_sparse(into, n);
  } else {
    dense_kernels(codec_.kind)
        .add(message_.data() + layout_.scales_at + scale_offset(codec_, done_),
             message_.data() + layout_.data_at + data_offset(codec_, done_), n, into);
  }
  done_ += n;
}

void Decoder::take_sparse(float* into, size_t n) {
  for (; entry_ < layout_.entries; ++entry_) {
    uint32_t position;
    if (codec_.kind == CodecKind::kTopK) {
      std::memcpy(&position, message_.data() + layout_.positions_at + entry_ * sizeof position, sizeof position);
    } else {
      position = chosen(codec_, seed_, entry_, elements_);
    }
    if (position >= done_ + n) return;
    float value;
    std::memcpy(&value, message_.data() + layout_.data_at + entry_ * sizeof value, sizeof value);
    into[position - done_] += value;
  }
}

}  // namespace braid

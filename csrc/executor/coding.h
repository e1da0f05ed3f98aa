// SPDX-License-Identifier: Apache-2.0
// What a lossy all_reduce or reduce_scatter does to its messages. Those inside a host stay as they are. Of those
// between hosts, a contribution (of a rank, or of what a host's ranks add up to) is encoded where it leaves, and
// decoded and added up in float32 by the one rank that completes the sum. In an all_reduce that rank encodes the
// sum once, takes what the message says for the sum itself, and sends the message to all: so everybody ends with
// the same bits, and nothing is encoded more than twice.
//
// Floats of 16 bits are converted a tile at a time: encoded and added up as float32, and the result is rounded
// once, by everybody alike. What that rounding takes away is kept by the rank that completes the sum, with the
// rest.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "codec/lossy.h"
#include "executor/layout.h"
#include "memory/pool.h"
#include "verify/verify.h"

namespace braid {

// The messages of one segment, from its beginning to its end.
class CodedSegment {
 public:
  void begin(std::byte* memory) {
    free_ = memory;
    arrivals_.clear();
    sums_.clear();
  }
  // A round's arrivals are read before the next begins.
  void begin_round() { arrivals_.clear(); }

 private:
  friend class Coding;
  struct Arrival {
    const Step* step = nullptr;
    size_t source = 0;
    ConstBytes message;
  };
  std::byte* free_ = nullptr;
  std::vector<Arrival> arrivals_;
  std::vector<std::pair<Ref, ConstBytes>> sums_;  // complete, and encoded
};

class Coding {
 public:
  // `hosts` has a number per node. REQUIRES: has_owners(schedule, hosts); operands.lossy; float32, float16 or
  // bfloat16, a sum or an average. The operands and the layout must outlive it.
  Coding(const VerifiedSchedule& schedule, Node node, const Operands& operands, const Layout& layout,
         std::vector<int> hosts);

  bool is_coded(Node peer) const {
    return hosts_[static_cast<size_t>(peer)] != hosts_[static_cast<size_t>(node_)];
  }
  bool is_coded(const Step& step) const;        // a reduce with a coded source
  bool is_handed_over(const Step& step) const;  // a send that handed_over() is for
  // Memory for the messages of one segment.
  size_t segment_bytes() const { return segment_bytes_; }

  // Where the message for source `source` of `step` (0 for a recv), which stands for `target`, is to land.
  Bytes landing(CodedSegment& segment, const Step& step, size_t source, Bytes target) const;
  // What is sent for `step`, which sends `values`: a sum's message, or a contribution, now encoded.
  ConstBytes outgoing(CodedSegment& segment, const Step& step, int64_t number, ConstBytes values) const;
  // What is sent to another of this host for `step`, a contribution: `values`, and what was kept there when this
  // rank still sent it to another host.
  ConstBytes handed_over(CodedSegment& segment, const Step& step, int64_t number, ConstBytes values) const;
  // What arrived for a recv goes to `target`.
  Status receive(CodedSegment& segment, const Step& step, Bytes target) const;
  // A reduce with a coded source: adds up `plain` (as they are; any may be `target`) and what arrived, and
  // puts what everybody will have into `target`.
  Status reduce(CodedSegment& segment, const Step& step, int64_t number, std::span<const std::byte* const> plain,
                Bytes target) const;

 private:
  Bytes take(CodedSegment& segment, size_t bytes) const;
  Bytes take_message(CodedSegment& segment, size_t bytes) const;  // for what has so many
  float* residual_at(const Ref& ref, int64_t number) const;
  uint32_t seed_of(const Ref& ref, int64_t number) const;

  size_t elements(size_t bytes) const { return bytes / size_of(dtype_); }
  template <class Byte>
  Byte* at(Byte* memory, size_t element) const {
    return memory + element * size_of(dtype_);
  }
  // Elements [begin, begin + n) as float32: where they are, or in the tile.
  const float* floats_at(const std::byte* values, size_t begin, size_t n, float* tile) const;
  // Rounds a tile to the dtype; what that takes away, times `scale`, is added to `kept` if there is any.
  void put(const float* values, size_t n, std::byte* to, float* kept, float scale = 1) const;
  Status decode_to(ConstBytes message, Bytes target, float* kept) const;

  const Node node_;
  const DType dtype_;
  const Layout& layout_;
  const bool sends_sums_;
  const std::vector<int> hosts_;
  const Lossy& lossy_;
  const float scale_;  // of a contribution
  size_t segment_bytes_ = 0;
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes the messages of a lossy all_reduce or reduce_scatter. Messages inside a host stay exact.
// Messages between hosts are encoded:
// - Its sender encodes a contribution: the values of one rank, or the sum over the ranks of one host.
// - The owner of a chunk decodes all contributions and adds them up in float32.
// - In an all_reduce the owner then encodes the sum once and sends this message to all. The owner decodes the
//   message too. So all ranks get the same bits, and no value is encoded more than twice.
//
// 16-bit floats are converted to float32 a tile at a time, then encoded or added up. All ranks round the result
// once, in the same way. The owner adds the rounding error to its residual.
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
  // REQUIRES: the arrivals of the round before have been read.
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
  std::vector<std::pair<Ref, ConstBytes>> sums_;  // encoded complete sums
};

class Coding {
 public:
  // `hosts`: the host number of each node. REQUIRES: has_owners(schedule, hosts); operands.lossy is set; float32,
  // float16 or bfloat16; a sum or an average. The operands and the layout must outlive this object.
  Coding(const VerifiedSchedule& schedule, Node node, const Operands& operands, const Layout& layout,
         std::vector<int> hosts);

  bool is_coded(Node peer) const {
    return hosts_[static_cast<size_t>(peer)] != hosts_[static_cast<size_t>(node_)];
  }
  bool is_coded(const Step& step) const;        // true for a reduce with a coded source
  bool is_handed_over(const Step& step) const;  // true for a send whose bytes handed_over() makes
  // The memory that the messages of one segment need.
  size_t segment_bytes() const { return segment_bytes_; }

  // Memory for the encoded message of source `source` of `step` (0 for a recv). The message encodes as many
  // elements as `target` has.
  Bytes landing(CodedSegment& segment, const Step& step, size_t source, Bytes target) const;
  // The message that `step` sends for `values`. A complete sum is encoded already; a contribution is encoded now.
  ConstBytes outgoing(CodedSegment& segment, const Step& step, int64_t number, ConstBytes values) const;
  // The contribution that `step` sends to a rank of this host: `values` plus the residual. There is a residual
  // only if an earlier plan sent this contribution to another host.
  ConstBytes handed_over(CodedSegment& segment, const Step& step, int64_t number, ConstBytes values) const;
  // Decodes the message that arrived for a recv into `target`.
  Status receive(CodedSegment& segment, const Step& step, Bytes target) const;
  // Runs a reduce with a coded source: adds up `plain` and the decoded messages. Writes to `target` the values
  // that all ranks will have. Any of `plain` may be `target`.
  Status reduce(CodedSegment& segment, const Step& step, int64_t number, std::span<const std::byte* const> plain,
                Bytes target) const;

 private:
  Bytes take(CodedSegment& segment, size_t bytes) const;
  Bytes take_message(CodedSegment& segment, size_t bytes) const;  // for `bytes` of values, before encoding
  float* residual_at(const Ref& ref, int64_t number) const;
  uint32_t seed_of(const Ref& ref, int64_t number) const;

  size_t elements(size_t bytes) const { return bytes / size_of(dtype_); }
  template <class Byte>
  Byte* at(Byte* memory, size_t element) const {
    return memory + element * size_of(dtype_);
  }
  // Elements [begin, begin + n) as float32. Float32 values are not copied; others are converted into `tile`.
  const float* floats_at(const std::byte* values, size_t begin, size_t n, float* tile) const;
  // Rounds a tile to the dtype. Adds the rounding error times `scale` to `kept`, unless `kept` is null.
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

// SPDX-License-Identifier: Apache-2.0
// The memory of all nodes as numbered cells, one per chunk. With `in_place`, the part of the output that callers
// may pass as the same memory as the input has the input's cells.
#pragma once

#include <cstddef>
#include <cstdint>

#include "schedule/schedule.h"

namespace braid {

// What a chunk is a part of. Two chunks have the same size for every tensor only when they have the same block:
// the chunk's number, or in all_to_all sender * ranks + receiver.
using Block = int64_t;

class Memory {
 public:
  // REQUIRES: check_structure() accepted the schedule, and accepted every ref passed below on its node.
  Memory(const Schedule& schedule, bool in_place)
      : collective_(schedule.collective),
        nodes_(schedule.nodes()),
        chunks_(schedule.chunks),
        in_place_(in_place) {}

  size_t size() const { return static_cast<size_t>(nodes_) * 3 * chunks_; }
  size_t cell(Node node, Buffer buffer, int chunk) const;
  // Is this place made for that block? In all_to_all scratch t_k is for the block to k and for the one from k.
  bool fits(Node node, Buffer buffer, int chunk, Block block) const;
  // The block that input `chunk` of `node` holds.
  Block input_block(Node node, int chunk) const;
  // The block that output `chunk` of `node` is for.
  Block output_block(Node node, int chunk) const;

 private:
  // The chunk of the input that output `chunk` shares its memory with, or -1.
  int aliased_input(Node node, int chunk) const;

  Collective collective_;
  int nodes_;
  int chunks_;
  bool in_place_;
};

}  // namespace braid

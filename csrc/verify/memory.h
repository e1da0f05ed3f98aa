// SPDX-License-Identifier: Apache-2.0
// The memory of all nodes as numbered cells, one per chunk. Callers may pass the same memory as input and output.
// With `in_place`, the shared part of the output has the input's cells.
#pragma once

#include <cstddef>
#include <cstdint>

#include "schedule/schedule.h"

namespace braid {

// Identifies the data of a chunk: the chunk's number, or in all_to_all sender * ranks + receiver. Two chunks have
// the same size for every tensor only if they have the same block.
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
  // True if this chunk of memory is made for that block. In all_to_all, scratch t_k is for the block to k and for
  // the block from k.
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

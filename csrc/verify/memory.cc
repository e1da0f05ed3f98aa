// SPDX-License-Identifier: Apache-2.0
#include "verify/memory.h"

namespace braid {

size_t Memory::cell(Node node, Buffer buffer, int chunk) const {
  if (in_place_ && buffer == Buffer::kOutput) {
    int input = aliased_input(node, chunk);
    if (input >= 0) {
      buffer = Buffer::kInput;
      chunk = input;
    }
  }
  return (static_cast<size_t>(node) * 3 + static_cast<size_t>(buffer)) * chunks_ + chunk;
}

bool Memory::fits(Node node, Buffer buffer, int chunk, Block block) const {
  switch (buffer) {
    case Buffer::kInput: return block == input_block(node, chunk);
    case Buffer::kOutput: return block == output_block(node, chunk);
    case Buffer::kScratch: break;
  }
  if (collective_.kind != CollectiveKind::kAllToAll) return block == chunk;
  Block outgoing = Block{node} * collective_.ranks + chunk;
  Block incoming = Block{chunk} * collective_.ranks + node;
  return block == outgoing || block == incoming;
}

Block Memory::input_block(Node node, int chunk) const {
  switch (collective_.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather: return node;
    case CollectiveKind::kAllToAll: return Block{node} * collective_.ranks + chunk;
    default: return chunk;
  }
}

Block Memory::output_block(Node node, int chunk) const {
  switch (collective_.kind) {
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kScatter: return node;
    case CollectiveKind::kAllToAll: return Block{chunk} * collective_.ranks + node;
    default: return chunk;
  }
}

int Memory::aliased_input(Node node, int chunk) const {
  switch (collective_.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBarrier: return chunk;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce: return node == collective_.root ? chunk : -1;
    case CollectiveKind::kAllGather: return chunk == node ? 0 : -1;
    case CollectiveKind::kReduceScatter: return node;
    case CollectiveKind::kGather: return node == collective_.root && chunk == node ? 0 : -1;
    case CollectiveKind::kScatter: return node == collective_.root ? node : -1;
    case CollectiveKind::kAllToAll: return -1;
  }
  return -1;
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "group/prepared.h"

#include <algorithm>
#include <utility>

#include "group/route.h"
#include "group/signature.h"

namespace braid {
namespace {

// A program that repeats up to this many different small operations lays out each only once.
constexpr size_t kMostPrepared = 16;
// Larger operations would save too small a part of their time.
constexpr size_t kMostBytes = 64 * 1024;

template <class Blocks>
bool has_sizes(const Blocks& blocks, const std::vector<size_t>& bytes) {
  return std::equal(blocks.begin(), blocks.end(), bytes.begin(), bytes.end(),
                    [](const auto& block, size_t size) { return block.size() == size; });
}

template <class Blocks>
std::vector<size_t> sizes_of(const Blocks& blocks) {
  std::vector<size_t> sizes;
  for (const auto& block : blocks) sizes.push_back(block.size());
  return sizes;
}

}  // namespace

PreparedOperation* PreparedOperations::find(const Operation& operation) {
  for (PreparedOperation& prepared : known_) {
    const Signature& signature = prepared.signature;
    if (signature.kind == static_cast<uint8_t>(operation.kind) &&
        signature.dtype == static_cast<uint8_t>(operation.dtype) &&
        (!is_reduction(operation.kind) || signature.op == static_cast<uint8_t>(operation.op)) &&
        (!has_root(operation.kind) || static_cast<Node>(signature.root) == operation.root) &&
        has_sizes(operation.inputs, prepared.input_bytes) && has_sizes(operation.outputs, prepared.output_bytes)) {
      return &prepared;
    }
  }
  return nullptr;
}

void PreparedOperations::prepare(const Operation& operation, const Route& route, Node rank) {
  if (!route.board.possible || operation.lossy || operation.kind == CollectiveKind::kBarrier) return;
  if (memory_bytes(operation) > kMostBytes || !SingleRound::is_of(route.schedule->schedule())) return;
  const Operands operands{operation.dtype, operation.op, operation.inputs, operation.outputs, operation.bytes};
  auto round = SingleRound::lay_out(route.schedule, route.board, rank, operands);
  if (!round) return;
  known_.push_front({signature_for(operation, route), &route, sizes_of(operation.inputs),
                     sizes_of(operation.outputs), std::move(*round)});
  if (known_.size() > kMostPrepared) known_.pop_back();
}

}  // namespace braid

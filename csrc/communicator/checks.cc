// SPDX-License-Identifier: Apache-2.0
#include "communicator/checks.h"

#include <algorithm>

namespace braid {
namespace {

Status invalid(const std::string& text) { return {Code::kInvalidArgument, text}; }

Status check_count(const char* what, size_t given, size_t expected) {
  if (given == expected) return {};
  return invalid("expected " + std::to_string(expected) + " " + what + " block(s), got " + std::to_string(given));
}

Status check_same_size(ConstBytes a, ConstBytes b, const char* what) {
  if (a.size() == b.size()) return {};
  return invalid(std::string(what) + ": " + std::to_string(a.size()) + " and " + std::to_string(b.size()) +
                 " bytes, but they must be equal");
}

template <class Block>
bool overlaps(const Block& a, ConstBytes b) {
  return !a.empty() && !b.empty() && a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

// True if the schedule's rules allow input block i and output block o to be the same memory.
bool may_share(CollectiveKind kind, size_t i, size_t o, Node rank) {
  const auto own = static_cast<size_t>(rank);
  switch (kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather: return i == 0 && o == own;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kScatter: return i == own && o == 0;
    case CollectiveKind::kAllToAll: return false;
    default: return true;
  }
}

Status check_blocks(const Operation& operation, Node rank, int ranks) {
  const Collective collective{operation.kind, ranks, operation.root};
  // Vector collectives: one block stands for all chunks of the vector.
  const auto blocks = [&](int chunks) {
    return static_cast<size_t>(is_vector(operation.kind) ? std::min(chunks, 1) : chunks);
  };
  const size_t inputs = blocks(input_chunks(collective, ranks, rank));
  const size_t outputs = blocks(output_chunks(collective, ranks, rank));
  if (Status bad = check_count("input", operation.inputs.size(), inputs); !bad.ok()) return bad;
  if (Status bad = check_count("output", operation.outputs.size(), outputs); !bad.ok()) return bad;
  const auto own = static_cast<size_t>(rank);
  switch (operation.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
      if (outputs > 0) return check_same_size(operation.inputs[0], operation.outputs[own], "own block");
      return {};
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kScatter:
      if (inputs > 0) return check_same_size(operation.inputs[own], operation.outputs[0], "own block");
      return {};
    case CollectiveKind::kAllToAll:
      return check_same_size(operation.inputs[own], operation.outputs[own], "own block");
    default:
      if (inputs > 0 && outputs > 0) return check_same_size(operation.inputs[0], operation.outputs[0], "vector");
      return {};
  }
}

Status check_lossy(const Operation& operation) {
  const Lossy& lossy = *operation.lossy;
  if (Status bad = check_lossy(operation.kind, operation.dtype, operation.op, lossy.codec); !bad.ok()) return bad;
  const size_t size = size_of(operation.dtype);
  const auto lies_well = [&](const void* memory) { return reinterpret_cast<uintptr_t>(memory) % size == 0; };
  size_t elements = 0;
  for (const ConstBytes& block : operation.inputs) elements += block.size() / size;
  const bool all_in = std::all_of(operation.inputs.begin(), operation.inputs.end(),
                                  [&](ConstBytes in) { return lies_well(in.data()); });
  const bool all_out = std::all_of(operation.outputs.begin(), operation.outputs.end(),
                                   [&](const Bytes& out) { return lies_well(out.data()); });
  if (!all_in || !all_out || reinterpret_cast<uintptr_t>(lossy.residual) % alignof(float) != 0) {
    return invalid("a lossy operation needs floats at addresses that are multiples of " + std::to_string(size) +
                   ", and a residual at one of 4; copy the array");
  }
  if (elements > kMostEncodedElements) {
    return invalid("a lossy operation takes " + std::to_string(kMostEncodedElements) + " elements at most");
  }
  const ConstBytes kept(reinterpret_cast<const std::byte*>(lossy.residual),
                        lossy.residual == nullptr ? 0 : elements * sizeof(float));
  const bool any_in = std::any_of(operation.inputs.begin(), operation.inputs.end(),
                                  [&](ConstBytes in) { return overlaps(in, kept); });
  const bool any_out = std::any_of(operation.outputs.begin(), operation.outputs.end(),
                                   [&](const Bytes& out) { return overlaps(out, kept); });
  if (any_in || any_out) {
    return invalid("the residual overlaps what is reduced; it needs memory of its own");
  }
  return {};
}

Status check_elements(const Operation& operation) {
  const size_t element = size_of(operation.dtype);
  const auto whole = [&](ConstBytes block) { return block.size() % element == 0; };
  for (const ConstBytes& block : operation.inputs) {
    if (!whole(block))
      return invalid("a block of " + std::to_string(block.size()) + " bytes is no whole number of " +
                     std::string(name_of(operation.dtype)) + " elements");
  }
  for (const Bytes& block : operation.outputs) {
    if (!whole(block))
      return invalid("a block of " + std::to_string(block.size()) + " bytes is no whole number of " +
                     std::string(name_of(operation.dtype)) + " elements");
  }
  return {};
}

}  // namespace

Status check_lossy(CollectiveKind kind, DType dtype, ReduceOp op, const Codec& codec) {
  const bool adds_up = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
  const bool is_float = dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  if (!adds_up || !is_float || (op != ReduceOp::kSum && op != ReduceOp::kAvg)) {
    return invalid(
        "only a sum or an average of float32, float16 or bfloat16 in an all_reduce or a reduce_scatter can "
        "be lossy; not " +
        std::string(name_of(op)) + " of " + std::string(name_of(dtype)) + " in " + std::string(name_of(kind)));
  }
  if (ratio(codec) * sizeof(float) < static_cast<double>(size_of(dtype)) || dtype == DType::kFloat32) return {};
  return invalid(to_text(codec) + " makes " + std::string(name_of(dtype)) +
                 " no smaller; leave it exact, or take a codec of fewer bits, such as int8");
}

Status check_overlap(const Operation& operation, Node rank) {
  for (size_t o = 0; o < operation.outputs.size(); ++o) {
    const Bytes& output = operation.outputs[o];
    for (size_t i = 0; i < operation.inputs.size(); ++i) {
      const ConstBytes& input = operation.inputs[i];
      if (!overlaps(input, output)) continue;
      const bool same = input.data() == output.data() && input.size() == output.size();
      if (!same || !may_share(operation.kind, i, o, rank)) {
        return invalid("input and output overlap in memory; use separate tensors");
      }
    }
    for (size_t other = o + 1; other < operation.outputs.size(); ++other) {
      if (overlaps(output, operation.outputs[other])) return invalid("output blocks overlap in memory");
    }
  }
  return {};
}

Status check_operation(const Operation& operation, Node rank, int ranks) {
  if (operation.kind == CollectiveKind::kBarrier) return {};  // a barrier ignores all other arguments
  if (operation.root < 0 || operation.root >= ranks) {
    return invalid("root " + std::to_string(operation.root) + " is not in a group of " + std::to_string(ranks));
  }
  if (is_reduction(operation.kind) && !is_defined(operation.dtype, operation.op)) {
    return invalid(undefined_text(operation.dtype, operation.op));
  }
  if (Status bad = check_blocks(operation, rank, ranks); !bad.ok()) return bad;
  if (Status bad = check_elements(operation); !bad.ok()) return bad;
  if (operation.lossy) {
    if (Status bad = check_lossy(operation); !bad.ok()) return bad;
  }
  return check_overlap(operation, rank);
}

bool is_size_agreed(CollectiveKind kind) {
  return kind != CollectiveKind::kAllToAll && kind != CollectiveKind::kGather && kind != CollectiveKind::kScatter;
}

int64_t agreed_bytes(const Operation& operation) {
  const auto sum = [](const auto& blocks) {
    size_t bytes = 0;
    for (const auto& block : blocks) bytes += block.size();
    return static_cast<int64_t>(bytes);
  };
  if (!is_size_agreed(operation.kind)) return 0;
  return std::max({sum(operation.inputs), sum(operation.outputs), static_cast<int64_t>(operation.bytes)});
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// What a collective must give, said with plain loops, and whether a schedule gives it.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "support/interpreter.h"

namespace braid::testing {

// Sizes that differ, so that a chunk in the wrong place shows. Some are empty.
inline size_t block_size(const Collective& c, Node sender, int chunk, Node receiver) {
  if (c.kind == CollectiveKind::kAllToAll) return (3 * sender + 5 * receiver) % 4;
  return 1 + (chunk * 7 + 2) % 3;
}

// Element `e` of what `rank` contributes to chunk `chunk` (and, in all_to_all, sends to rank `chunk`).
inline uint64_t element(Node rank, int chunk, size_t e) {
  uint64_t x = (static_cast<uint64_t>(rank) << 40) + (static_cast<uint64_t>(chunk) << 16) + e + 1;
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
  return x ^ (x >> 27);
}

template <class T>
T value_of(Node rank, int chunk, size_t e) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(element(rank, chunk, e) % 1000003) * static_cast<T>(1e-3);
  } else {
    return static_cast<T>(element(rank, chunk, e));
  }
}

template <class T>
std::vector<T> contribution(const Collective& c, Node rank, int chunk) {
  std::vector<T> values(block_size(c, rank, chunk, chunk));
  for (size_t e = 0; e < values.size(); ++e) values[e] = value_of<T>(rank, chunk, e);
  return values;
}

template <class T>
std::vector<T> input_of(const Collective& c, Node node, int chunk) {
  bool one_block = c.kind == CollectiveKind::kAllGather || c.kind == CollectiveKind::kGather;
  return contribution<T>(c, node, one_block ? node : chunk);
}

template <class T>
std::vector<T> expected_output(const Collective& c, Node node, int chunk) {
  switch (c.kind) {
    case CollectiveKind::kBroadcast: return contribution<T>(c, c.root, chunk);
    case CollectiveKind::kScatter: return contribution<T>(c, c.root, node);
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather: return contribution<T>(c, chunk, chunk);
    case CollectiveKind::kAllToAll: return contribution<T>(c, chunk, node);
    default: break;
  }
  int block = c.kind == CollectiveKind::kReduceScatter ? node : chunk;
  std::vector<T> total = contribution<T>(c, 0, block);
  for (Node rank = 1; rank < c.ranks; ++rank) {
    std::vector<T> more = contribution<T>(c, rank, block);
    for (size_t e = 0; e < total.size(); ++e) total[e] += more[e];
  }
  return total;
}

// Empty when the schedule computes its collective in every mode: exactly on integers, and with the same bits on
// all ranks on floats. REQUIRES: every ref of the schedule exists.
inline std::string fault_of(const Schedule& schedule) {
  const Collective& c = schedule.collective;
  auto name = [](const Mode& mode, Node node, int chunk) {
    return "r" + std::to_string(node) + " o" + std::to_string(chunk) + (mode.in_place ? " in place" : "") +
           (mode.late ? " late" : "") + (mode.backwards ? " backwards" : "");
  };
  for (const Mode& mode : all_modes()) {
    Interpreter<uint64_t> exact(schedule, mode, [&](Node n, int k) { return input_of<uint64_t>(c, n, k); });
    Interpreter<float> rounded(schedule, mode, [&](Node n, int k) { return input_of<float>(c, n, k); });
    if (!exact.run() || !rounded.run()) return "stuck or broken";
    for (Node node = 0; node < c.ranks; ++node) {
      for (int chunk = 0; chunk < output_chunks(c, schedule.chunks, node); ++chunk) {
        if (exact.output(node, chunk) != expected_output<uint64_t>(c, node, chunk)) {
          return "wrong result: " + name(mode, node, chunk);
        }
        if (!is_vector(c.kind) || has_root(c.kind)) continue;
        const auto& mine = rounded.output(node, chunk);
        const auto& first = rounded.output(0, chunk);
        if (std::memcmp(mine.data(), first.data(), mine.size() * sizeof(float)) != 0) {
          return "other bits than r0: " + name(mode, node, chunk);
        }
      }
    }
  }
  return "";
}

}  // namespace braid::testing

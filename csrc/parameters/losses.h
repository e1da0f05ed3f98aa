// SPDX-License-Identifier: Apache-2.0
// Where a shard has lost updates. Each time its server is lost, another one goes on from a version that somebody has.
// Newer updates are lost then. Servers and workers keep this list, and it travels with the shard. So a worker that
// sleeps while several servers are lost, one after the other, learns at the end which of its updates are left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid {

class Losses {
 public:
  static constexpr uint64_t kNone = UINT64_MAX;

  // With this move the shard has gone on from this version; kNone changes nothing. Beyond kMost losses the two oldest
  // become one, with the smaller version. Then more updates seem lost than are.
  void add(uint64_t moves, uint64_t version);
  // The least version from which the shard has gone on after this move: of the updates before it, those up to this
  // version are left. kNone if no server was lost since.
  uint64_t least_since(uint64_t moves) const;

  // As numbers of a message.
  static constexpr size_t kMost = 64;
  static constexpr size_t kFloats = kMost * 2 * sizeof(uint64_t) / sizeof(float);
  void write(float* to) const;
  static Losses read(const float* from);

 private:
  struct Loss {
    uint64_t moves = 0;  // 0: none
    uint64_t version = 0;
  };
  std::vector<Loss> list_;  // in the order of moves, and of versions: one with a larger version says nothing new
};

}  // namespace braid

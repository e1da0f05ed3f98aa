// SPDX-License-Identifier: Apache-2.0
// The central idea of braid: a collective algorithm is data. A Schedule holds a short program for every node, made
// of four kinds of steps on chunks: send, recv, reduce, copy. Planners draw it, the verifier proves it, the cost
// model prices it, the executor runs one node's part of it. See docs/schedule.md for one full dump.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/collective.h"

namespace braid {

// Three memories of a node. Input is only read. Input and output may be the same memory (an in-place call);
// a schedule must be right in both cases, and the verifier proves both. Scratch mirrors the larger of the two:
// chunk k of scratch has the size of chunk k.
enum class Buffer : uint8_t { kInput, kOutput, kScratch };  // "i", "o", "t" in the text form

// A run of consecutive chunks of one memory. Runs longer than 1 exist only in vector collectives.
struct Ref {
  Buffer buffer = Buffer::kInput;
  int32_t first = 0;
  int32_t count = 1;

  bool operator==(const Ref&) const = default;
};

// An operand of a reduce or copy: a local ref, or a message from another node.
struct Source {
  Node from = -1;  // the sending node, or -1 for a local ref
  Ref ref;         // local only

  bool is_remote() const { return from >= 0; }
  bool operator==(const Source&) const = default;
};

// | op     | reads            | writes | what it does                                                     |
// | send   | target           | -      | target goes to `peer` as one message                             |
// | recv   | a message        | target | the next message from `peer` lands in target                     |
// | reduce | sources (>= 2)   | target | target = sources combined, in the order listed, in one pass      |
// | copy   | one local source | target | target = source (nothing to do when both are the same memory)    |
enum class Op : uint8_t { kSend, kRecv, kReduce, kCopy };

struct Step {
  Op op = Op::kSend;
  Ref target;
  Node peer = -1;               // send, recv
  std::vector<Source> sources;  // reduce, copy

  bool operator==(const Step&) const = default;
};

// One round of one node. First all messages of the round move, at the same time and in any order: the messages of
// send and recv steps, and the remote sources of reduce steps, which land in memory of the executor. When all have
// moved, the round's reduce and copy steps run in the order listed. Then the node's next round begins.
// So a send reads the memory as it was before the round, and a reduce may overwrite memory that its round sends.
// Only messages connect the rounds of different nodes: the k-th message that s sends to d is the k-th that d takes
// from s (counted over all rounds; inside a round in step order, inside a step in source order).
using Round = std::vector<Step>;
using Program = std::vector<Round>;  // one node's part

// The first collective.ranks nodes are the ranks. The nodes after them are aggregators, which are lightweight
// parameter servers: they contribute nothing and need no result. They have scratch only, add up the messages of
// the ranks, and send the sums back. Only vector collectives may have aggregators.
struct Schedule {
  Collective collective;
  std::string algorithm;  // the algorithm's name: "ring", "direct", ...
  int chunks = 1;
  std::vector<uint64_t> shares;   // one weight per chunk (vector collectives); empty means equal shares
  std::vector<Program> programs;  // one per node

  int nodes() const { return static_cast<int>(programs.size()); }
  int aggregators() const { return nodes() - collective.ranks; }
  bool operator==(const Schedule&) const = default;
};

inline constexpr int kMaxChunks = 1 << 16;            // chunks of a schedule
inline constexpr int kMaxChunksOfAllNodes = 1 << 24;  // chunks times nodes

// Cuts `count` elements into the schedule's chunks by its shares. Returns chunks + 1 offsets; the first is 0 and
// the last is `count`. Uses integer arithmetic only, so all ranks agree. Chunks with equal shares differ by at
// most one element. REQUIRES: count >= 0; shares are empty, or one per chunk with a sum below 2^63 (verify()
// checks this).
std::vector<int64_t> chunk_offsets(const Schedule& schedule, int64_t count);

}  // namespace braid

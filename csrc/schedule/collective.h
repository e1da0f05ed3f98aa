// SPDX-License-Identifier: Apache-2.0
// The chunks that a collective starts from and the chunks that it must end with. See docs/schedule.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace braid {

using Node = int32_t;  // position in the group: the ranks are 0..ranks-1, aggregators come after them
inline constexpr Node kAnyNode = -1;

// The values travel in message headers: append only.
enum class CollectiveKind : uint8_t {
  kAllReduce = 0,
  kReduceScatter = 1,
  kAllGather = 2,
  kBroadcast = 3,
  kReduce = 4,
  kAllToAll = 5,
  kGather = 6,
  kScatter = 7,
  kBarrier = 8,
};
inline constexpr int kCollectiveKindCount = 9;

std::string_view name_of(CollectiveKind kind);  // "all_reduce", ...
std::optional<CollectiveKind> collective_from_name(std::string_view name);

struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int ranks = 1;
  Node root = 0;  // broadcast, reduce, gather, scatter; 0 otherwise

  bool operator==(const Collective&) const = default;
};

// *Vector* collectives (all_reduce, broadcast, reduce, barrier) work on one vector that the schedule cuts into
// as many chunks as it likes, of sizes given by its shares. *Block* collectives (the others) work on one block
// per rank: chunk k is rank k's block, and there are always `ranks` chunks.
bool is_vector(CollectiveKind kind);
bool has_root(CollectiveKind kind);
// True if the collective combines contributions with a ReduceOp. A barrier does: it is an all_reduce whose result
// nobody reads.
bool is_reduction(CollectiveKind kind);

// More are refused everywhere. The limit bounds the cost of a wrong number in a text file.
inline constexpr int kMaxRanks = 4096;  // also the limit for all nodes together
// kInvalidArgument unless ranks and root are in range.
Status check(const Collective& collective);

// The nodes as error messages count them: "3 ranks and 1 aggregator".
std::string nodes_text(int ranks, int aggregators, std::string_view of = "rank");

// The number of chunks of the input ("i") and the output ("o") on `node`; 0 if it has none, as aggregators.
// `chunks` is the schedule's chunk count (== ranks for block collectives).
//   all_reduce, barrier   i: chunks          o: chunks
//   broadcast             i: root chunks     o: chunks
//   reduce                i: chunks          o: root chunks
//   reduce_scatter        i: ranks           o: 1 (the node's own block, o0)
//   all_gather            i: 1 (i0)          o: ranks
//   all_to_all            i: ranks (i_d goes to d)   o: ranks (o_s came from s)
//   gather                i: 1               o: root ranks
//   scatter               i: root ranks      o: 1
int input_chunks(const Collective& collective, int chunks, Node node);
int output_chunks(const Collective& collective, int chunks, Node node);

}  // namespace braid

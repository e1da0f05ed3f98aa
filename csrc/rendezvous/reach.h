// SPDX-License-Identifier: Apache-2.0
// Which ranks of a new group one wire joins: those that reach each other. Where only a try can tell, ranks tell each
// other the results through the store.
#pragma once

#include <string>
#include <vector>

#include "base/store.h"
#include "transport/wire.h"

namespace braid {

// Why a wire does not join this rank and a peer.
struct Refusal {
  std::string why;
  bool was_tried = false;  // false: the endpoints alone excluded it
};

struct Reaches {
  Node rank = 0;
  // By rank: how it reaches each rank, a grade each (Reach); "" if it was not asked.
  std::vector<std::string> rows;
  std::vector<Refusal> refusals;  // by peer

  char mine(Node peer) const { return rows[static_cast<size_t>(rank)][static_cast<size_t>(peer)]; }
  char theirs(Node peer) const {
    const std::string& row = rows[static_cast<size_t>(peer)];
    return row.empty() ? Reach::kNone : row[static_cast<size_t>(rank)];
  }
  bool joins(Node peer) const { return mine(peer) != Reach::kNone && theirs(peer) != Reach::kNone; }
};

// Finds the ranks that the wire reaches. `peers` has an entry for each rank; the keys in the store begin with `prefix`.
// kTimeout names a rank that does not tell its results.
Result<Reaches> find_reaches(Wire& wire, Store& store, const std::string& prefix, Node rank,
                             const std::vector<WirePeer>& peers, Deadline deadline);

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// Messages between ranks of one host without a queue in between: the sender posts them on its own board, in shared
// memory, and the receiver reads them there. For those who know beforehand which message comes next, as the ranks of
// a verified schedule do: messages have no tags, only their order.
//
// Thread safety: by one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/span.h"
#include "base/status.h"
#include "memory/reserve.h"
#include "transport/frame.h"
#include "transport/shm/board_layout.h"
#include "transport/shm/link.h"
#include "transport/shm/write_policy.h"

namespace braid::shm {

// A peer as my board sees it.
struct BoardPeer {
  std::byte* board = nullptr;  // the peer's
  const Link* link = nullptr;
};

// Where a message lies: here, or in the memory of its sender.
struct Posted {
  const std::byte* here = nullptr;
  uint64_t there = 0;
};

class Board {
 public:
  // `own` and the boards of `peers` (one per rank; this rank's entry is not looked at) have board_bytes(ranks,
  // bounce_bytes), began as zeros, and outlive this.
  Board(Node rank, std::byte* own, std::vector<BoardPeer> peers, size_t bounce_bytes);

  int ranks() const { return static_cast<int>(peers_.size()); }
  size_t bounce_bytes() const { return bounce_bytes_; }

  // ---- what everybody is doing

  // Tells all who look that this rank is now in collective `stream`, with this intent.
  void announce(uint64_t stream, const Intent& intent);
  // What a rank, maybe this one, meant to do in `stream`; none if it has not come to it, or is kIntents further.
  std::optional<Intent> intent_of(Node node, uint64_t stream) const;

  // ---- sending

  // What is copied into the bounce buffer until the next call is given up together, when everything posted meanwhile is taken.
  void begin_round() { round_ = bounced_; }
  // Copies a message to where all peers can read it; its place, or none while there is no room. It may be posted to
  // several peers. None, too, while the machine has no memory for it: then refusal() says so. REQUIRES: a round copies at most bounce_bytes() / 2, in whole cache lines.
  std::optional<uint32_t> bounce(ConstBytes bytes);
  const Status& refusal() const { return refusal_; }
  // Posts the next message for `to`: from the bounce buffer, or in the notice itself when `place` is kInline. False while
  // there is no room. Nobody is woken.
  bool post(Node to, uint64_t digest, ConstBytes bytes, uint32_t place);
  // Whether so many messages could be posted for the peer.
  bool has_room(Node to, size_t messages);
  // Posts a message that the peer will read where it lies. It must stay as it is until that is
  // taken, or the channels of the group are closed. False as for post(). REQUIRES: fewer than 4 GiB.
  bool lend(Node to, uint64_t digest, ConstBytes bytes);
  // Whether the peer has taken everything posted for it.
  bool has_taken_all(Node to) const;

  // ---- receiving

  // Whether the peer has posted its message `ahead` places after the last one taken.
  bool has_come(Node from, size_t ahead) const {
    return incoming(from, ahead).number.load(std::memory_order_seq_cst) == side(from).taken_by_me + 1 + ahead;
  }
  // That message, where it lies. kMismatch when it has another digest or size; kPeerLost when it makes no sense.
  // REQUIRES: has_come(from, ahead).
  Result<Posted> open(Node from, size_t ahead, uint64_t digest, size_t bytes) const;
  // Copies what the peer has lent, or a part. kPeerLost as for pull().
  Status read(Node from, uint64_t there, Bytes into) const;
  // The next `count` messages from this peer will not be looked at again.
  void take(Node from, size_t count);

  // Rings for the peers who sleep, if anything was posted or taken since the last call.
  void wake();

 private:
  struct Side {  // what is exchanged with one peer
    BoardPeer peer;
    Notice* outgoing = nullptr;              // mine, for the peer
    const Notice* incoming = nullptr;        // the peer's, for me
    std::atomic<uint64_t>* taken = nullptr;  // mine: what I took from the peer
    const std::atomic<uint64_t>* their_taken = nullptr;
    uint64_t posted = 0;
    uint64_t taken_by_me = 0;
    uint64_t taken_by_peer = 0;  // when last looked at
    bool stirred = false;        // since the last wake()
    std::vector<uint64_t>
        held;  // by number modulo kNotices: the bounce buffer is held from here on for that notice
  };

  Side& side(Node peer) { return peers_[static_cast<size_t>(peer)]; }
  const Side& side(Node peer) const { return peers_[static_cast<size_t>(peer)]; }
  const Notice& incoming(Node from, size_t ahead) const {
    return side(from).incoming[(side(from).taken_by_me + 1 + ahead) % kNotices];
  }
  void free_bounce_buffer();
  void write(std::byte* to, ConstBytes bytes);  // into the bounce buffer
  // The next notice for the peer, to be filled; none while there is no room.
  Notice* next_notice(Node to, uint64_t digest, size_t bytes);
  void publish(Side& side, Notice& notice);

  const Node rank_;
  const size_t bounce_bytes_;
  std::byte* const bounce_;
  ReservedPrefix memory_;  // of the bounce buffer
  Status refusal_;
  BoardHeader& header_;
  std::vector<Side> peers_;
  // Bytes since the beginning; the place is the count modulo bounce_bytes_.
  uint64_t bounced_ = 0;
  uint64_t freed_ = 0;
  uint64_t round_ = 0;  // where the round began
  WritePolicy write_policy_;
};

}  // namespace braid::shm

// SPDX-License-Identifier: Apache-2.0
// Messages between ranks of one host without a queue. The sender posts a message on its own board, in shared
// memory; the receiver reads it there. Messages have an order but no tags. So ranks must know which message comes
// next, as the ranks of a verified schedule do.
//
// Thread safety: only the carrier of the group's current collective uses it.
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

// A peer, as this rank's board sees it.
struct BoardPeer {
  std::byte* board = nullptr;  // the peer's
  const Link* link = nullptr;
};

// Where a message lies: on a board (`here`), or in the memory of its sender (`there`).
struct Posted {
  const std::byte* here = nullptr;
  uint64_t there = 0;
};

class Board {
 public:
  // `own` and the boards of `peers` have board_bytes(ranks, bounce_bytes), began as zeros, and outlive this.
  // `peers` has an entry per rank; the one of this rank is not used.
  Board(Node rank, std::byte* own, std::vector<BoardPeer> peers, size_t bounce_bytes);

  int ranks() const { return static_cast<int>(peers_.size()); }
  size_t bounce_bytes() const { return bounce_bytes_; }

  // ---- which collectives the ranks are in

  // Shows all peers that this rank is now in collective `stream`, with this signature.
  void announce(uint64_t stream, const Signature& signature);
  // The signature of a rank, or of this one, in `stream`. None if the rank has not come to it, or is kSignatures
  // further.
  std::optional<Signature> signature_of(Node node, uint64_t stream) const;

  // ---- sending

  // Begins a round. The messages of a round free their part of the bounce buffer together, when all of them are
  // taken.
  void begin_round() { round_ = bounced_; }
  // Copies a message into the bounce buffer, from where it may be posted to several peers. Returns its place, or
  // none while there is no room. None, too, if the machine has no memory for it: then refusal() says so. REQUIRES:
  // a round copies at most bounce_bytes() / 2, in whole cache lines.
  std::optional<uint32_t> bounce(ConstBytes bytes);
  const Status& refusal() const { return refusal_; }
  // Posts the next message for `to`, at its `place` in the bounce buffer, or in the notice itself if `place` is
  // kInline. False while there is no room. Wakes nobody.
  bool post(Node to, uint64_t digest, ConstBytes bytes, uint32_t place);
  // True if this many messages could be posted for the peer.
  bool has_room(Node to, size_t messages);
  // Posts a message that the peer reads in this rank's memory. The message must not change until the peer has
  // taken it, or the channels of the group are closed. False while there is no room. REQUIRES: fewer than 4 GiB.
  bool lend(Node to, uint64_t digest, ConstBytes bytes);
  // True if the peer has taken everything that was posted for it.
  bool has_taken_all(Node to) const;

  // ---- receiving

  // True if the peer has posted the message that is `ahead` places after the next one to take.
  bool has_come(Node from, size_t ahead) const {
    return incoming(from, ahead).number.load(std::memory_order_seq_cst) == side(from).taken_by_me + 1 + ahead;
  }
  // The place of that message. kMismatch if its digest or size differs; kPeerLost if its place is impossible.
  // REQUIRES: has_come(from, ahead).
  Result<Posted> open(Node from, size_t ahead, uint64_t digest, size_t bytes) const;
  // Copies the message that the peer has lent, or a part of it. kPeerLost as for pull().
  Status read(Node from, uint64_t there, Bytes into) const;
  // Gives back the next `count` messages of this peer. They will not be read again.
  void take(Node from, size_t count);

  // Wakes the peers that sleep, if anything was posted or taken since the last call.
  void wake();

 private:
  struct Side {  // the state of the exchange with one peer
    BoardPeer peer;
    Notice* outgoing = nullptr;              // this rank's notices for the peer
    const Notice* incoming = nullptr;        // the peer's notices for this rank
    std::atomic<uint64_t>* taken = nullptr;  // on this rank's board: the number of notices taken from the peer
    const std::atomic<uint64_t>* their_taken = nullptr;
    uint64_t posted = 0;
    uint64_t taken_by_me = 0;
    uint64_t taken_by_peer = 0;  // when last looked at
    bool stirred = false;        // since the last wake()
    std::vector<uint64_t> held;  // by notice number % kNotices: the bounce buffer is in use from this count on
  };

  Side& side(Node peer) { return peers_[static_cast<size_t>(peer)]; }
  const Side& side(Node peer) const { return peers_[static_cast<size_t>(peer)]; }
  const Notice& incoming(Node from, size_t ahead) const {
    return side(from).incoming[(side(from).taken_by_me + 1 + ahead) % kNotices];
  }
  void free_bounce_buffer();
  void write(std::byte* to, ConstBytes bytes);  // into the bounce buffer
  // The next notice for the peer, to be filled. None while there is no room.
  Notice* next_notice(Node to, uint64_t digest, size_t bytes);
  void publish(Side& side, Notice& notice);

  const Node rank_;
  const size_t bounce_bytes_;
  std::byte* const bounce_;
  ReservedPrefix memory_;  // the reserved part of the bounce buffer
  Status refusal_;
  BoardHeader& header_;
  std::vector<Side> peers_;
  // These count bytes since the beginning. A place is the count modulo bounce_bytes_.
  uint64_t bounced_ = 0;
  uint64_t freed_ = 0;
  uint64_t round_ = 0;  // the count when the round began
  WritePolicy write_policy_;
};

}  // namespace braid::shm

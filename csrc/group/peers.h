// SPDX-License-Identifier: Apache-2.0
// What this rank shows the other ranks of its group, and what it knows of them: the place where each runs, and the
// collective that each is in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "communicator/member.h"
#include "rendezvous/rendezvous.h"
#include "transport/frame.h"
#include "transport/mailbox.h"

namespace braid {

// Thread safety: functions may be called from any thread once the wires are made, but those "for the carrier" only
// by the thread that carries the running collective.
class Peers {
 public:
  // All arguments must outlive it. The wires may be made later.
  Peers(const Member& member, const Wires& wires, Mailbox& mailbox)
      : member_(member), wires_(wires), mailbox_(mailbox) {}

  // "node7 (pid 4711)"; empty if it is not known.
  std::string place_of(Node node) const;
  // For the carrier: shows the other ranks that this rank is now in collective `sequence`. It shows it on the board,
  // if there is one, and tells the mailbox if `by_mailbox`.
  void announce(uint64_t sequence, const Signature& signature, bool by_mailbox);
  // kMismatch if a rank of this host has another operation than this rank as collective `sequence`, or as one of
  // the `before` collectives before it.
  Status disagreement(uint64_t sequence, uint64_t before = 0) const;
  // The nodes not known to have begun collective `sequence`. First call ask() of the mailbox and wait for answers.
  std::vector<Node> missing(uint64_t sequence) const;
  // For the carrier: true if the doorbell has rung since the last call, and on the first call. Then the caller must
  // poll the mailbox.
  bool has_rung();

 private:
  const Member& member_;
  const Wires& wires_;
  Mailbox& mailbox_;
  uint32_t polled_at_ = 0;  // rings of the doorbell before the last poll
  bool has_polled_ = false;
};

}  // namespace braid

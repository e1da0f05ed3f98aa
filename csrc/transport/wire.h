// SPDX-License-Identifier: Apache-2.0
// The interface of a wire: a kind of transport between processes, such as shared memory or TCP. A Wire is one rank's
// part of it for one group, and makes the group's channels (channel.h). Groups and their rendezvous use this interface
// and name no wire. docs/transport.md tells how to add one.
//
// The rendezvous calls, in this order:
//   1. offer(), once. The text goes into this rank's endpoint.
//   2. join(), for each set of endpoints that it reads: once, or rarely more often.
//   3. reach(), if must_try(), for each peer that may be reached. Then the ranks tell each other their grades.
//   4. connect(), for each peer that both sides reach by this wire, and by none before it in the list of wires.
//   5. settle(), once.
// The frames of connected peers go to the sink that the wire was made with.
//
// Thread safety: one thread at a time until settle(). Later any thread may call take_rates(), leave() and
// wait_for_last_words().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/channel.h"
#include "transport/shm/board.h"

namespace braid {

inline constexpr size_t kSecretDigits = 32;  // hexadecimal digits of a group's secret

// Bytes per second, without headers of TCP and lower layers. 0: too few bytes passed.
struct NicRates {
  double up_bytes_per_s = 0;
  double down_bytes_per_s = 0;
};

// A rank of the group, as one wire sees it.
struct WirePeer {
  std::string offer;  // "": the rank does not offer this wire
  bool is_on_this_host = false;
};

// How well a wire reaches a peer. A wire has grades of its own; ranks tell each other the grade.
struct Reach {
  static constexpr char kNone = '-';
  static constexpr char kReached = 'y';

  char grade = kNone;
  std::string refusal;  // why the peer is not reached: one line
};

// The board of a group whose ranks all share memory; null if they do not.
struct SharedBoard {
  std::unique_ptr<shm::Board> board;
  bool readable = false;  // every rank can read the memory of every other
};

class Wire {
 public:
  virtual ~Wire() = default;

  // As BRAID_TRANSPORTS and endpoints write it: lower-case letters, digits and '_'.
  virtual std::string_view name() const = 0;

  // ---- Forming the group

  // The text by which peers reach this rank: one line, not empty.
  virtual Result<std::string> offer() = 0;
  // Lets the members of the group in. `group` is new in each rendezvous and the same on all ranks. Members know
  // `secret`, of kSecretDigits. `peers` has an entry for each rank. A further call replaces the call before.
  virtual Status join(const std::string& group, const std::string& secret, const std::vector<WirePeer>& peers) = 0;
  // Why the peer cannot be reached, as far as both endpoints tell; "" if it may be reached. REQUIRES: the peer's wire
  // gives the same answer for this rank.
  virtual std::string excludes(const WirePeer& /*peer*/) const { return ""; }
  // True if only reach() can tell whether a peer is reached. Otherwise each peer that is not excluded is reached.
  virtual bool must_try() const { return false; }
  virtual Reach reach(Node /*peer*/, const std::string& /*offer*/) { return {Reach::kReached, ""}; }
  // The channel to a peer. `theirs` is the grade with which the peer reaches this rank.
  virtual Result<std::unique_ptr<Channel>> connect(Node peer, const std::string& offer, char theirs) = 0;
  // What users read of a connected peer: "tcp 10.0.0.1:4711".
  virtual std::string describe(Node peer, const std::string& offer) const = 0;
  // All peers are connected. The wire may give up what it needed to reach others.
  virtual void settle() {}

  // ---- Abilities that not every wire has

  // The address of the NIC behind an offer, equal in all groups of its process; "" if the wire goes through no NIC.
  virtual std::string nic_of(const std::string& /*offer*/) const { return ""; }
  // A word for Mailbox::publish_at(), which peers read without this rank's help. At most one wire of a group has one.
  virtual std::atomic<uint64_t>* stream_word() { return nullptr; }
  // For wires over shared memory: this rank's board, if all ranks reach each other. `reaches` has for each rank the
  // grades of all its peers; it is empty for ranks that this rank may not reach. `crowded`: ranks outnumber cores; the
  // same on all ranks. REQUIRES: the board is destroyed before the wire.
  virtual SharedBoard share_board(const std::vector<std::string>& /*reaches*/, bool /*crowded*/) { return {}; }

  // ---- While the group lives

  // What this group has passed through the NIC since the last call, while it was busy.
  virtual NicRates take_rates() { return {}; }
  // Closes all channels. When this returns, the sink is not touched any more. REQUIRES: the sink's mutex is not held.
  virtual void leave() {}
  // After leave(), in a process that is about to end: waits until the last frames have gone.
  virtual void wait_for_last_words(Deadline /*deadline*/) {}
};

}  // namespace braid

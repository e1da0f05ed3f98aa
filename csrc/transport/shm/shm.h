// SPDX-License-Identifier: Apache-2.0
// The wire between ranks of one host: a ring in shared memory per pair and direction. The receiver reads large
// messages directly from the sender's memory, if the machine allows it. Nothing has a name in the file system.
//
// Setting up: every rank makes a ShmDoorbell and a ShmGroup, and gives its endpoint to the others. It connects to
// each peer that may be on its host, and tells the peer two results: whether it connected, and can_read(). Then
// each pair that connected on both sides takes its channels.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "memory/segment.h"
#include "transport/channel.h"
#include "transport/death_watch.h"
#include "transport/doorbell.h"
#include "transport/neighbours.h"
#include "transport/shm/board.h"
#include "transport/shm/peer_memory.h"

namespace braid {

struct ShmOptions {
  size_t ring_bytes = 128 * 1024;  // of each ring into this rank's inbox; a power of two, at least 4096
  size_t eager_bytes = 16 * 1024;  // larger messages are never buffered; at most a quarter of a ring
  bool single_copy = true;         // read peers' memory, and let them read this process's memory
};

// This process's doorbell and its pulse, in shared memory: peers ring the doorbell and read the pulse. One per
// process, shared by all groups.
class ShmDoorbell {
 public:
  static Result<std::unique_ptr<ShmDoorbell>> create();
  // Maps a peer's doorbell.
  static Result<std::unique_ptr<ShmDoorbell>> attach(std::string_view handle);

  DoorbellWord& word() const;
  std::atomic<uint32_t>& pulse() const;
  // The processes that this one has connected to, on this host.
  Neighbours& neighbours() { return neighbours_; }
  const std::string& handle() const { return segment_.handle(); }
  pid_t owner() const { return segment_.owner(); }

 private:
  explicit ShmDoorbell(Segment segment) : segment_(std::move(segment)) {}

  Segment segment_;
  Neighbours neighbours_;
};

// This rank's side of one group's shared memory on this host.
//
// Thread safety: used by one thread at a time, during the set-up.
class ShmGroup {
 public:
  // `bell` outlives `watch`, which outlives the group.
  static Result<std::unique_ptr<ShmGroup>> create(Node rank, int ranks, ShmDoorbell& bell, DeathWatch& watch,
                                                  const ShmOptions& options);
  // REQUIRES: all channels are closed.
  ~ShmGroup();

  // The text by which peers reach this side: one line.
  const std::string& endpoint() const { return endpoint_; }

  // With single_copy: permits the processes of these endpoints to read this one, if the machine asks for that
  // (Yama's ptrace_scope 1). Call it before they connect, since connecting tries to read.
  void permit(const std::vector<std::string>& endpoints);
  // From now on permits only these peers, until the group ends. REQUIRES: connect() succeeded for each.
  void permit_only(const std::vector<Node>& peers);

  // Maps the peer's inbox and doorbell and watches its process. Success means that both are on one host. An error
  // says what was refused; the pair then needs another wire.
  Status connect(Node peer, const std::string& endpoint);
  // The peer's memory was read with success (never without single_copy). REQUIRES: connect() succeeded.
  bool can_read(Node peer) const;

  // The channel to a peer; called at most once per peer. REQUIRES: connect() succeeded on both sides;
  // `peer_can_read_me` is the result of the peer's can_read(). The channel must be closed before the group is
  // destroyed. Each limit is the smaller one of both sides' options.
  std::unique_ptr<Channel> channel(Node peer, FrameSink& sink, bool peer_can_read_me);

  // The board of this rank, for groups that are all on this host. `crowded`: ranks outnumber cores. REQUIRES:
  // connect() succeeded with every other rank; the board is destroyed before the group; all ranks pass the same
  // `crowded`.
  std::unique_ptr<shm::Board> board(bool crowded);

  // The word for Mailbox::publish_at(): peers read this rank's stream there without its help.
  std::atomic<uint64_t>* stream_word();

 private:
  struct Peer;

  ShmGroup(Node rank, int ranks, ShmDoorbell& bell, DeathWatch& watch, const ShmOptions& options, Segment inbox,
           Segment board, Nonce probe);
  Status connect_to(Peer& peer, const std::string& endpoint);
  Peer* find(Node peer) const { return peers_[static_cast<size_t>(peer)].get(); }

  const Node rank_;
  const int ranks_;
  ShmDoorbell& bell_;
  DeathWatch& watch_;
  const ShmOptions options_;
  Segment inbox_;
  Segment board_;
  const Nonce probe_;  // in private memory: peers that can read it can read all memory of this process
  std::string endpoint_;
  shm::Readers readers_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null if not connected
};

}  // namespace braid

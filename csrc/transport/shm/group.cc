// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "memory/reserve.h"
#include "transport/shm/channel.h"
#include "transport/shm/group_endpoint.h"
#include "transport/shm/layout.h"
#include "transport/shm/peer_memory.h"
#include "transport/shm/shm.h"

namespace braid {

struct ShmGroup::Peer {
  shm::Link link;
  std::optional<Segment> inbox;
  std::optional<Segment> board;
  std::unique_ptr<ShmDoorbell> bell;
  std::optional<DeathWatch::Id> watched;
};

Result<std::unique_ptr<ShmGroup>> ShmGroup::create(Node rank, int ranks, ShmDoorbell& bell, DeathWatch& watch,
                                                   const ShmOptions& options) {
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return Status(Code::kInvalidArgument,
                  "no rank " + std::to_string(rank) + " in a group of " + std::to_string(ranks));
  }
  if (!shm::is_ring_size(options.ring_bytes)) {
    return Status(Code::kInvalidArgument,
                  "a ring cannot have " + std::to_string(options.ring_bytes) + " bytes, only powers of two from " +
                      std::to_string(shm::kSmallestRing) + " to " + std::to_string(shm::kLargestRing));
  }
  Result<Segment> inbox = Segment::create("braid-inbox", shm::group_bytes(ranks, options.ring_bytes));
  if (!inbox.ok()) return inbox.status();
  Result<Segment> board =
      Segment::create("braid-board", shm::board_bytes(ranks, shm::bounce_bytes_for(ranks, false)));
  if (!board.ok()) return board.status();
  // Reserves the parts that are written without another check. Rings and the bounce buffer are reserved as they
  // fill.
  for (const auto& [segment, bytes] : {std::pair(&inbox.value(), shm::rings_offset(ranks)),
                                       std::pair(&board.value(), shm::bounce_offset(ranks))}) {
    if (Status refused = reserve(segment->data(), bytes); !refused.ok()) return refused;
  }
  Result<Nonce> probe = Nonce::random();
  if (!probe.ok()) return probe.status();
  return std::unique_ptr<ShmGroup>(new ShmGroup(rank, ranks, bell, watch, options, std::move(inbox).value(),
                                                std::move(board).value(), probe.value()));
}

ShmGroup::ShmGroup(Node rank, int ranks, ShmDoorbell& bell, DeathWatch& watch, const ShmOptions& options,
                   Segment inbox, Segment board, Nonce probe)
    : rank_(rank),
      ranks_(ranks),
      bell_(bell),
      watch_(watch),
      options_(options),
      inbox_(std::move(inbox)),
      board_(std::move(board)),
      probe_(probe),
      peers_(static_cast<size_t>(ranks)) {
  shm::header_of(inbox_).stream.store(shm::kNoStream, std::memory_order_relaxed);  // nobody has my endpoint yet
  shm::GroupEndpoint endpoint{
      rank_,  ranks_,          options_.ring_bytes, options_.eager_bytes, reinterpret_cast<uint64_t>(&probe_),
      probe_, inbox_.handle(), board_.handle(),     bell_.handle()};
  endpoint_ = endpoint.text();
}

ShmGroup::~ShmGroup() {
  for (const auto& peer : peers_) {
    if (!peer) continue;
    if (peer->watched) watch_.forget(*peer->watched);
    bell_.neighbours().remove(peer->bell->word());
  }
}

void ShmGroup::permit(const std::vector<std::string>& endpoints) {
  if (!options_.single_copy) return;
  std::vector<pid_t> pids;
  for (const std::string& text : endpoints) {
    const auto endpoint = shm::GroupEndpoint::parse(text);
    const auto pid = endpoint.ok() ? Segment::owner_of(endpoint.value().inbox) : Result<pid_t>(endpoint.status());
    if (pid.ok() && pid.value() != ::getpid()) pids.push_back(pid.value());
  }
  readers_.set(std::move(pids));
}

void ShmGroup::permit_only(const std::vector<Node>& peers) {
  if (!options_.single_copy) return;
  std::vector<pid_t> pids;
  for (const Node peer : peers) {
    if (const pid_t pid = find(peer)->link.pid; pid != ::getpid()) pids.push_back(pid);
  }
  readers_.set(std::move(pids));
}

Status ShmGroup::connect(Node node, const std::string& endpoint) {
  const std::string context = "shared memory with rank " + std::to_string(node);
  if (node < 0 || node >= ranks_ || node == rank_ || find(node) != nullptr) {
    return {Code::kInvalidArgument, context + ": not a rank to connect to"};
  }
  auto peer = std::make_unique<Peer>();
  peer->link.peer = node;
  const Status status = connect_to(*peer, endpoint);
  if (status.ok()) {
    if (peer->bell->handle() != bell_.handle()) bell_.neighbours().add(peer->bell->word());
    peers_[static_cast<size_t>(node)] = std::move(peer);
  } else if (peer->watched) {
    watch_.forget(*peer->watched);
  }
  return status.within(context);
}

Status ShmGroup::connect_to(Peer& peer, const std::string& text) {
  Result<shm::GroupEndpoint> parsed = shm::GroupEndpoint::parse(text);
  if (!parsed.ok()) return parsed.status();
  const shm::GroupEndpoint& endpoint = parsed.value();
  shm::Link& link = peer.link;
  if (endpoint.rank != link.peer || endpoint.ranks != ranks_) {
    return {Code::kInvalidArgument,
            "the endpoint is of rank " + std::to_string(endpoint.rank) + " of " + std::to_string(endpoint.ranks)};
  }

  Result<Segment> inbox = Segment::attach(endpoint.inbox);
  if (!inbox.ok()) return inbox.status();
  link.pid = inbox.value().owner();
  if (inbox.value().size() < shm::group_bytes(ranks_, endpoint.ring_bytes)) {  // larger by less than a page
    return {Code::kInvalidArgument, "its segment is smaller than its endpoint says"};
  }
  if (link.pid != ::getpid()) {
    watch_.beat(bell_.pulse());
    DoorbellWord* my_bell = &bell_.word();
    Result<DeathWatch::Id> watched = watch_.watch(link.pid, [&died = link.died, my_bell] {
      died.store(true, std::memory_order_release);
      ring(*my_bell);
    });
    if (!watched.ok()) return watched.status();
    peer.watched = watched.value();
  }
  // Attached through the process number after the watch began, so the watched process is the one that made the
  // endpoint.
  Result<std::unique_ptr<ShmDoorbell>> bell = ShmDoorbell::attach(endpoint.bell);
  if (!bell.ok()) return bell.status();
  if (bell.value()->owner() != link.pid) {
    return {Code::kInvalidArgument, "inbox and doorbell are of different processes"};
  }

  Result<Segment> board = Segment::attach(endpoint.board);
  if (!board.ok()) return board.status();
  if (board.value().owner() != link.pid ||
      board.value().size() < shm::board_bytes(ranks_, shm::bounce_bytes_for(ranks_, false))) {
    return {Code::kInvalidArgument, "its board is not what its endpoint says"};
  }

  peer.inbox = std::move(inbox).value();
  peer.board = std::move(board).value();
  peer.bell = std::move(bell).value();
  link.in = shm::ring_of(inbox_, ranks_, options_.ring_bytes, link.peer);
  link.out = shm::ring_of(*peer.inbox, ranks_, endpoint.ring_bytes, rank_);
  link.header = &shm::header_of(*peer.inbox);
  link.my_bell = &bell_.word();
  link.peer_bell = &peer.bell->word();
  if (link.pid != ::getpid()) link.peer_pulse = &peer.bell->pulse();

  // Both sides must compute the same limits.
  const size_t largest = shm::payload_limit(std::min(options_.ring_bytes, endpoint.ring_bytes));
  link.traits.eager_bytes = std::min({options_.eager_bytes, endpoint.eager_bytes, largest});
  link.traits.piece_bytes = largest;
  Nonce probe;
  link.traits.reads_peer =
      options_.single_copy &&
      shm::read_memory(link.pid, endpoint.probe_address, std::as_writable_bytes(std::span(&probe, 1))).ok() &&
      probe == endpoint.probe;
  return {};
}

bool ShmGroup::can_read(Node peer) const { return find(peer)->link.traits.reads_peer; }

std::unique_ptr<Channel> ShmGroup::channel(Node node, FrameSink& sink, bool peer_can_read_me) {
  shm::Link& link = find(node)->link;
  link.traits.peer_reads = peer_can_read_me;
  return std::make_unique<shm::ShmChannel>(link, sink);
}

std::unique_ptr<shm::Board> ShmGroup::board(bool crowded) {
  std::vector<shm::BoardPeer> peers(static_cast<size_t>(ranks_));
  for (Node node = 0; node < ranks_; ++node) {
    if (node == rank_) continue;
    const Peer& peer = *find(node);
    peers[static_cast<size_t>(node)] = {peer.board->data(), &peer.link};
  }
  return std::make_unique<shm::Board>(rank_, board_.data(), std::move(peers),
                                      shm::bounce_bytes_for(ranks_, crowded));
}

std::atomic<uint64_t>* ShmGroup::stream_word() { return &shm::header_of(inbox_).stream; }

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/wire.h"

#include <utility>

namespace braid {
namespace {

// The grades of a reach.
constexpr char kMapped = 'm';
constexpr char kReadable = 'r';  // mapped, and the peer's memory can be read

}  // namespace

ShmWire::ShmWire(Node rank, int ranks, FrameSink& sink, ShmDoorbell& bell, DeathWatch& watch,
                 const ShmOptions& options)
    : rank_(rank), ranks_(ranks), sink_(sink), bell_(bell), watch_(watch), options_(options) {}

Result<std::string> ShmWire::offer() {
  auto group = ShmGroup::create(rank_, ranks_, bell_, watch_, options_);
  if (!group.ok()) return group.status();
  group_ = std::move(group).value();
  return group_->endpoint();
}

// Peers of this host try to read this process once all ranks have confirmed the endpoints. So permit them before.
Status ShmWire::join(const std::string&, const std::string&, const std::vector<WirePeer>& peers) {
  std::vector<std::string> neighbours;
  for (size_t peer = 0; peer < peers.size(); ++peer) {
    const bool is_neighbour = peers[peer].is_on_this_host && !peers[peer].offer.empty();
    if (is_neighbour && static_cast<Node>(peer) != rank_) neighbours.push_back(peers[peer].offer);
  }
  group_->permit(neighbours);
  return {};
}

std::string ShmWire::excludes(const WirePeer& peer) const {
  return peer.is_on_this_host ? "" : "they are not on one host";
}

Reach ShmWire::reach(Node peer, const std::string& offer) {
  if (const Status bad = group_->connect(peer, offer); !bad.ok()) return {Reach::kNone, bad.message()};
  return {group_->can_read(peer) ? kReadable : kMapped, ""};
}

Result<std::unique_ptr<Channel>> ShmWire::connect(Node peer, const std::string&, char theirs) {
  if (theirs == kReadable) readers_.push_back(peer);
  return group_->channel(peer, sink_, theirs == kReadable);
}

std::string ShmWire::describe(Node peer, const std::string&) const {
  return group_->can_read(peer) ? "shm, single copy" : "shm, copied through a ring";
}

void ShmWire::settle() { group_->permit_only(readers_); }

std::atomic<uint64_t>* ShmWire::stream_word() { return group_ ? group_->stream_word() : nullptr; }

// All ranks see the same grades, so all get a board, or none does.
SharedBoard ShmWire::share_board(const std::vector<std::string>& reaches, bool crowded) {
  bool readable = true;
  for (size_t rank = 0; rank < reaches.size(); ++rank) {
    if (reaches[rank].empty()) return {};
    for (size_t peer = 0; peer < reaches[rank].size(); ++peer) {
      if (peer == rank) continue;
      if (reaches[rank][peer] == Reach::kNone) return {};
      readable &= reaches[rank][peer] == kReadable;
    }
  }
  return {group_->board(crowded), readable};
}

}  // namespace braid

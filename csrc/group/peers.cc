// SPDX-License-Identifier: Apache-2.0
#include "group/peers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "codec/lossy.h"

namespace braid {

bool Peers::has_rung() {
  const uint32_t rings = member_.engine->bell().rings.load(std::memory_order_acquire);
  if (std::exchange(polled_at_, rings) == rings && has_polled_) return false;
  has_polled_ = true;
  return true;
}

void Peers::announce(uint64_t sequence, const Signature& signature, bool by_mailbox) {
  if (wires_.board) wires_.board->announce(sequence, signature);
  if (by_mailbox) {
    mailbox_.begin(sequence, signature);
  } else {
    wires_.stream_word->store(sequence, std::memory_order_relaxed);
  }
}

Status Peers::disagreement(uint64_t sequence, uint64_t before) const {
  if (!wires_.board) return {};
  for (uint64_t stream = sequence - std::min(before, sequence); stream <= sequence; ++stream) {
    const std::optional<Signature> mine = wires_.board->signature_of(member_.rank, stream);
    for (Node node = 0; mine && node < member_.ranks; ++node) {
      const std::optional<Signature> theirs = wires_.board->signature_of(node, stream);
      if (theirs && *theirs != *mine) return disagree(stream, member_.rank, *mine, node, *theirs, name_of_codec);
    }
  }
  return {};
}

std::string Peers::place_of(Node node) const {
  const auto i = static_cast<size_t>(node);
  return node >= 0 && i < wires_.places.size() ? wires_.places[i] : "";
}

std::vector<Node> Peers::missing(uint64_t sequence) const {
  std::vector<Node> nodes;
  const std::vector<int64_t> streams = mailbox_.peer_streams();
  for (Node node = 0; node < member_.nodes; ++node) {
    if (node != member_.rank && streams[static_cast<size_t>(node)] < static_cast<int64_t>(sequence))
      nodes.push_back(node);
  }
  return nodes;
}

}  // namespace braid

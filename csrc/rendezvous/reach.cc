// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/reach.h"

#include "rendezvous/endpoint_exchange.h"

namespace braid {
namespace {

// This rank's row, then a line for each peer that it could not reach: the peer's number and the reason.
std::string to_text(const Reaches& reaches) {
  std::string text = reaches.rows[static_cast<size_t>(reaches.rank)];
  for (size_t peer = 0; peer < reaches.refusals.size(); ++peer) {
    const Refusal& refusal = reaches.refusals[peer];
    if (refusal.was_tried) text += "\n" + std::to_string(peer) + " " + refusal.why;
  }
  return text;
}

// Stores a peer's row. Also stores the peer's reason, unless this rank has its own. False if there is no row.
bool take_row(const std::string& text, Node from, Reaches& reaches) {
  const size_t n = reaches.rows.size();
  if (text.size() < n || (text.size() > n && text[n] != '\n')) return false;
  reaches.rows[static_cast<size_t>(from)] = text.substr(0, n);
  Refusal& refusal = reaches.refusals[static_cast<size_t>(from)];
  const std::string lead = "\n" + std::to_string(reaches.rank) + " ";
  if (const size_t found = text.find(lead, n); refusal.why.empty() && found != std::string::npos) {
    const size_t begin = found + lead.size();
    refusal = {rank_text(from) + " says: " + text.substr(begin, text.find('\n', begin) - begin), true};
  }
  return true;
}

}  // namespace

Result<Reaches> find_reaches(Wire& wire, Store& store, const std::string& prefix, Node rank,
                             const std::vector<WirePeer>& peers, Deadline deadline) {
  const size_t n = peers.size();
  Reaches reaches{rank, std::vector<std::string>(n), std::vector<Refusal>(n)};
  std::string row(n, Reach::kNone);
  std::vector<Node> candidates;
  for (size_t i = 0; i < n; ++i) {
    const auto peer = static_cast<Node>(i);
    if (peer == rank) continue;
    const std::string why =
        peers[i].offer.empty() ? rank_text(peer) + " does not offer it" : wire.excludes(peers[i]);
    if (!why.empty()) {
      reaches.refusals[i] = {why, false};
      continue;
    }
    candidates.push_back(peer);
    const Reach reach = wire.must_try() ? wire.reach(peer, peers[i].offer) : Reach{Reach::kReached, ""};
    row[i] = reach.grade;
    if (reach.grade == Reach::kNone) reaches.refusals[i] = {reach.refusal, true};
  }
  reaches.rows[static_cast<size_t>(rank)] = row;
  if (candidates.empty()) return reaches;
  if (!wire.must_try()) {
    for (const Node peer : candidates) reaches.rows[static_cast<size_t>(peer)] = std::string(n, Reach::kReached);
    return reaches;
  }
  const std::string what = "reach/" + std::string(wire.name());
  Status bad = store.set(prefix + what + "/" + std::to_string(rank), to_text(reaches));
  if (!bad.ok()) return bad;
  for (const Node peer : candidates) {
    auto theirs = await(store, prefix, what, peer, deadline);
    if (!theirs.ok()) return theirs.status();
    if (!take_row(theirs.value(), peer, reaches)) {
      return Status(Code::kMismatch, rank_text(peer) + " left no reach for this group's size", peer);
    }
  }
  return reaches;
}

}  // namespace braid

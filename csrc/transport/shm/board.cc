// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/board.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/copy.h"

namespace braid::shm {
namespace {

Taken* takens_of(std::byte* board) { return reinterpret_cast<Taken*>(board + sizeof(BoardHeader)); }

Notice* notices_of(std::byte* board, int ranks, Node reader) {
  std::byte* first = board + sizeof(BoardHeader) + static_cast<size_t>(ranks) * sizeof(Taken);
  return reinterpret_cast<Notice*>(first) + static_cast<size_t>(reader) * kNotices;
}

size_t whole_lines(size_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

}  // namespace

Board::Board(Node rank, std::byte* own, std::vector<BoardPeer> peers, size_t bounce_bytes)
    : rank_(rank),
      bounce_bytes_(bounce_bytes),
      bounce_(own + bounce_offset(static_cast<int>(peers.size()))),
      memory_(bounce_, bounce_bytes),
      header_(*reinterpret_cast<BoardHeader*>(own)),
      peers_(peers.size()) {
  const int ranks = static_cast<int>(peers.size());
  for (Node node = 0; node < ranks; ++node) {
    if (node == rank) continue;
    Side& s = side(node);
    s.peer = peers[static_cast<size_t>(node)];
    s.outgoing = notices_of(own, ranks, node);
    s.incoming = notices_of(s.peer.board, ranks, rank);
    s.taken = &takens_of(own)[node].count;
    s.their_taken = &takens_of(s.peer.board)[rank].count;
    s.held.resize(kNotices);
  }
}

void Board::announce(uint64_t stream, const Signature& signature) {
  PostedSignature& posted = header_.signatures[stream % kSignatures];
  uint64_t words[2];
  std::memcpy(words, &signature, sizeof words);
  posted.stream.store(kNoStream, std::memory_order_relaxed);
  // Release and acquire on the words keep a reader from taking the new words for the words of the old stream.
  posted.words[0].store(words[0], std::memory_order_release);
  posted.words[1].store(words[1], std::memory_order_release);
  // Sequentially consistent, like the reads: if two ranks announce and then look, at least one sees the other.
  posted.stream.store(stream, std::memory_order_seq_cst);
}

std::optional<Signature> Board::signature_of(Node node, uint64_t stream) const {
  const auto& header = node == rank_ ? header_ : *reinterpret_cast<const BoardHeader*>(side(node).peer.board);
  const PostedSignature& posted = header.signatures[stream % kSignatures];
  if (posted.stream.load(std::memory_order_seq_cst) != stream) return std::nullopt;
  const uint64_t words[2] = {posted.words[0].load(std::memory_order_acquire),
                             posted.words[1].load(std::memory_order_acquire)};
  if (posted.stream.load(std::memory_order_relaxed) != stream) return std::nullopt;
  Signature signature;
  std::memcpy(&signature, words, sizeof words);
  return signature;
}

// ---- sending

std::optional<uint32_t> Board::bounce(ConstBytes bytes) {
  const size_t size = whole_lines(bytes.size());
  uint64_t begin = bounced_;
  const size_t left = bounce_bytes_ - begin % bounce_bytes_;  // bytes to the end: a message does not wrap around
  if (size > left) begin += left;
  if (begin + size - freed_ > bounce_bytes_) {
    free_bounce_buffer();
    if (begin + size - freed_ > bounce_bytes_) return std::nullopt;
  }
  const auto place = static_cast<uint32_t>(begin % bounce_bytes_);
  if (!memory_.holds(place + size)) {
    refusal_ = memory_.grow_to(place + size);
    if (!refusal_.ok()) return std::nullopt;
  }
  write(bounce_ + place, bytes);
  bounced_ = begin + size;
  return place;
}

void Board::write(std::byte* to, ConstBytes bytes) {
  if (bytes.size() < WritePolicy::kLeastBytes) return copy_bytes(to, bytes.data(), bytes.size());
  const auto begin = Clock::now();
  if (write_policy_.streams()) {
    stream_bytes(to, bytes.data(), bytes.size());
    end_of_stream();
  } else {
    copy_bytes(to, bytes.data(), bytes.size());
  }
  write_policy_.wrote(bytes.size(), Clock::now() - begin);
}

// Frees the bounce buffer up to the round of the oldest notice that a peer has not taken. Nothing of the current
// round is freed, as it may yet be posted to other peers.
void Board::free_bounce_buffer() {
  uint64_t held = round_;
  for (Side& s : peers_) {
    if (s.outgoing == nullptr) continue;
    s.taken_by_peer = s.their_taken->load(std::memory_order_seq_cst);
    if (s.taken_by_peer < s.posted) held = std::min(held, s.held[(s.taken_by_peer + 1) % kNotices]);
  }
  freed_ = std::max(freed_, held);
}

bool Board::has_room(Node to, size_t messages) {
  Side& s = side(to);
  if (s.posted - s.taken_by_peer + messages <= kNotices) return true;
  s.taken_by_peer = s.their_taken->load(std::memory_order_seq_cst);
  return s.posted - s.taken_by_peer + messages <= kNotices;
}

Notice* Board::next_notice(Node to, uint64_t digest, size_t bytes) {
  if (!has_room(to, 1)) return nullptr;
  Side& s = side(to);
  Notice& notice = s.outgoing[(s.posted + 1) % kNotices];
  notice.digest = digest;
  notice.bytes = static_cast<uint32_t>(bytes);
  return &notice;
}

void Board::publish(Side& s, Notice& notice) {
  const uint64_t number = ++s.posted;
  s.held[number % kNotices] = round_;
  s.stirred = true;
  // Sequentially consistent, like the reader's count of sleepers: the reader sees the notice, or we see it sleep.
  notice.number.store(number, std::memory_order_seq_cst);
}

bool Board::post(Node to, uint64_t digest, ConstBytes bytes, uint32_t place) {
  Notice* notice = next_notice(to, digest, bytes.size());
  if (notice == nullptr) return false;
  notice->offset = place;
  if (place == kInline && !bytes.empty()) std::memcpy(notice->message, bytes.data(), bytes.size());
  publish(side(to), *notice);
  return true;
}

bool Board::lend(Node to, uint64_t digest, ConstBytes bytes) {
  Notice* notice = next_notice(to, digest, bytes.size());
  if (notice == nullptr) return false;
  notice->offset = kLent;
  const auto there = reinterpret_cast<uint64_t>(bytes.data());
  std::memcpy(notice->message, &there, sizeof there);
  publish(side(to), *notice);
  return true;
}

// ---- receiving

Result<Posted> Board::open(Node from, size_t ahead, uint64_t digest, size_t bytes) const {
  const Notice& notice = incoming(from, ahead);
  if (notice.digest != digest) {
    return Status(
        Code::kMismatch,
        "rank " + std::to_string(rank_) + " and rank " + std::to_string(from) + " are not in the same operation",
        from);
  }
  const size_t size = notice.bytes;
  if (size != bytes) {
    return Status(Code::kMismatch,
                  "sizes disagree: rank " + std::to_string(from) + " has a message of " + std::to_string(size) +
                      " bytes where rank " + std::to_string(rank_) + " has one of " + std::to_string(bytes),
                  from);
  }
  const size_t offset = notice.offset;
  if (offset == kInline && size <= kInlineBytes) return Posted{notice.message, 0};
  if (offset == kLent) {
    uint64_t there = 0;
    std::memcpy(&there, notice.message, sizeof there);
    return Posted{nullptr, there};
  }
  if (offset > bounce_bytes_ || size > bounce_bytes_ - offset) {
    return Status(Code::kPeerLost, "rank " + std::to_string(from) + " posted a broken notice", from);
  }
  return Posted{side(from).peer.board + bounce_offset(ranks()) + offset, 0};
}

Status Board::read(Node from, uint64_t there, Bytes into) const {
  return pull(*side(from).peer.link, there, into);
}

void Board::take(Node from, size_t count) {
  Side& s = side(from);
  s.taken_by_me += count;
  s.taken->store(s.taken_by_me, std::memory_order_seq_cst);
  s.stirred = true;
}

bool Board::has_taken_all(Node to) const {
  return side(to).their_taken->load(std::memory_order_seq_cst) == side(to).posted;
}

void Board::wake() {
  for (Side& s : peers_) {
    if (!std::exchange(s.stirred, false)) continue;
    DoorbellWord& bell = *s.peer.link->peer_bell;
    if (bell.sleepers.load(std::memory_order_seq_cst) != 0) ring(bell);
  }
}

}  // namespace braid::shm

// SPDX-License-Identifier: Apache-2.0
#include "fuzz/mailbox_world.h"

#include <malloc.h>

#include <cstring>
#include <utility>

// There under a sanitizer, which has an allocator of its own.
extern "C" size_t __sanitizer_get_current_allocated_bytes() __attribute__((weak));

namespace braid::fuzz {
namespace {

// Small, so that a short input reaches beyond them.
constexpr size_t kEagerBytes = 64;
constexpr size_t kPieceBytes = 48;
constexpr size_t kMostUnanswered = 64;
constexpr uint8_t kKinds = static_cast<uint8_t>(kLastFrameKind) + 1;  // one of them is none
constexpr std::byte kUntouched{0xee};
// For both peers, and all that an input makes this world and its mailbox keep.
constexpr size_t kMostKeptBytes = size_t{1} << 20;
constexpr Mailbox::Limits kLimits{16 * 1024, 64};  // a flood goes beyond them

constexpr std::array<uint32_t, 16> kSizes = {0,  1,  8,   47,  48,  49,   63,    64,
                                             65, 96, 100, 200, 400, 5000, 65536, 65537};

ChannelTraits traits_of(uint8_t wires) {
  ChannelTraits traits{kEagerBytes, kPieceBytes};
  traits.has_nic = (wires & 1) != 0;
  traits.peer_reads = traits.reads_peer = !traits.has_nic && (wires & 2) != 0;
  return traits;
}

// More to go by for libFuzzer than the code that ran: which frames were under way at the same time, and what happened
// while one was.
__attribute__((section("__libfuzzer_extra_counters"))) uint8_t seen_pairs[16][16];
__attribute__((section("__libfuzzer_extra_counters"))) uint8_t seen_meanwhile[16][16];

// What the message of a tag holds at `offset`: never what memory held before.
std::byte content(Node from, const Tag& tag, uint64_t offset) {
  const uint64_t mixed =
      (tag.stream * 131 + tag.index * 31 + static_cast<uint64_t>(from) * 7 + offset) * 0x9e3779b97f4a7c15u;
  const auto byte = static_cast<std::byte>(mixed >> 56);
  return byte == kUntouched ? std::byte{0} : byte;
}

size_t heap_bytes() {
  return __sanitizer_get_current_allocated_bytes != nullptr ? __sanitizer_get_current_allocated_bytes()
                                                            : ::mallinfo2().uordblks;
}

void use(ConstBytes bytes) {
  volatile uint8_t sum = 0;
  for (const std::byte byte : bytes) sum = static_cast<uint8_t>(sum + std::to_integer<uint8_t>(byte));
}

// As connections do before they ask where a payload lands.
bool is_too_long(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kMessage: return frame.payload_bytes > kEagerBytes;
    case FrameKind::kPiece: return frame.payload_bytes > kPieceBytes;
    case FrameKind::kFail: return frame.payload_bytes > kMostReasonBytes;
    default: return frame.payload_bytes > 0;
  }
}

}  // namespace

void KeepingChannel::post(const Frame& frame, ConstBytes payload, Request* request) {
  require(frame.payload_bytes == payload.size(), "a frame says how long its payload is");
  if (is_closed_) return;
  Posted posted{frame, {}, payload, request};
  if (request == nullptr) posted.copy.assign(payload.begin(), payload.end());
  posted_.push_back(std::move(posted));
  if (payload.empty() && unanswered_.size() < kMostUnanswered) unanswered_.push_back(frame);
  if (writes_at_once_) write_one();
}

bool KeepingChannel::write_one() {
  if (is_closed_ || posted_.empty()) return false;
  const Posted first = std::move(posted_.front());
  posted_.pop_front();
  use(first.request == nullptr ? ConstBytes(first.copy) : first.payload);
  if (first.request != nullptr) sink_.written(first.request);
  return true;
}

Status KeepingChannel::pull(uint64_t address, Bytes into) {
  if (address % 2 == 1) return {Code::kPeerLost, "its memory is gone"};
  std::fill(into.begin(), into.end(), kUntouched);
  return {};
}

void KeepingChannel::close() {
  is_closed_ = true;
  posted_.clear();
}

MailboxWorld::MailboxWorld(uint8_t wires)
    : traits_(traits_of(wires)), mailbox_(std::make_unique<Mailbox>(0, 3, bell_)) {
  mailbox_->set_limits(kLimits);
  for (const Node node : {1, 2}) {
    auto channel = std::make_unique<KeepingChannel>(*mailbox_, traits_, (wires & 4) != 0);
    peer(node).channel = channel.get();
    mailbox_->attach(node, std::move(channel));
  }
  heap_at_start_ = heap_bytes();
}

// ---- peers

// Two of them more often than the others.
MailboxWorld::Connection& MailboxWorld::any_connection(Node from, Reader& reader) {
  const uint8_t which = reader.byte();
  return peer(from).connections[which < 192 ? which % 2 : which % kConnections];
}

uint64_t MailboxWorld::any_stream(Reader& reader) const {
  const uint8_t which = reader.byte();
  if (which % 8 < open_.size()) return open_[which % 8].first;
  switch (which % 8) {
    case 4: return kPointToPoint;
    case 5: return kPointToPoint | 1;
    case 6: return next_stream_;
    case 7: return uint64_t{which} << 32;
    default: return next_stream_ - 1;  // the last that was begun
  }
}

Signature MailboxWorld::signature_of(uint64_t stream) const {
  for (const auto& [begun, signature] : open_) {
    if (begun == stream) return signature;
  }
  return {};
}

void MailboxWorld::stranger_frame(Reader& reader) {
  const Node from = any_peer(reader);
  Connection& connection = any_connection(from, reader);
  Frame frame;
  const uint8_t kind = reader.byte();
  frame.kind = static_cast<FrameKind>(kind < 192 ? 1 + kind % kKinds : kind);
  frame.tag = {any_stream(reader), reader.one_of(8)};
  const uint8_t sizes = reader.byte();
  frame.payload_bytes = kSizes[sizes % kSizes.size()];
  frame.message_bytes = (sizes & 16) != 0 ? frame.payload_bytes : kSizes[reader.one_of(kSizes.size())];
  if ((sizes & 32) != 0) frame.offset = reader.byte();
  frame.signature = signature_of(frame.tag.stream);
  if ((sizes & 192) == 192) frame.signature.kind = reader.byte();
  frame.was_announced = (sizes & 128) != 0 ? 1 : 0;
  arrive(from, connection, frame, (sizes & 64) != 0 ? reader.byte() : frame.payload_bytes);
}

// The next frame that brings on a receive, or an answer to one that the mailbox has posted.
void MailboxWorld::honest_frame(Reader& reader) {
  const Node from = any_peer(reader);
  Peer& p = peer(from);
  const uint8_t choices = reader.byte();
  Connection& connection = p.connections[choices % kConnections];
  Frame frame;
  if ((choices & 16) != 0 && !p.channel->unanswered().empty()) {
    const Frame asked = p.channel->unanswered().front();
    p.channel->unanswered().pop_front();
    frame.tag = asked.tag;
    frame.message_bytes = asked.message_bytes;
    frame.signature = asked.signature;
    switch (asked.kind) {
      case FrameKind::kClearToSend:
        frame.kind = FrameKind::kPiece;
        frame.offset = choices & 32 ? 0 : kPieceBytes;
        frame.offset = std::min(frame.offset, frame.message_bytes);
        frame.payload_bytes =
            static_cast<uint32_t>(std::min<uint64_t>(kPieceBytes, frame.message_bytes - frame.offset));
        if ((choices & 64) != 0) p.channel->unanswered().push_front(asked);  // more pieces will come
        break;
      case FrameKind::kRequestToSend: frame.kind = FrameKind::kClearToSend; break;
      case FrameKind::kOffer: frame.kind = FrameKind::kTaken; break;
      case FrameKind::kWant: frame.kind = FrameKind::kRequestToSend; break;
      case FrameKind::kAsk: frame.kind = FrameKind::kTell; break;
      default: return;
    }
  } else {
    const Pending* receive = nullptr;
    size_t skip = choices >> 6;
    for (const auto& pending : pending_) {
      if (pending->is_send || pending->peer != from) continue;
      receive = pending.get();
      if (skip-- == 0) break;
    }
    if (receive == nullptr) return;
    frame.tag = receive->tag;
    frame.message_bytes = receive->memory.size();
    frame.signature = signature_of(frame.tag.stream);
    if (frame.message_bytes <= kEagerBytes) {
      frame.kind = FrameKind::kMessage;
      frame.payload_bytes = static_cast<uint32_t>(frame.message_bytes);
    } else {
      frame.kind = traits_.reads_peer ? FrameKind::kOffer : FrameKind::kRequestToSend;
    }
  }
  arrive(from, connection, frame, (choices & 32) != 0 ? reader.byte() : frame.payload_bytes);
}

void MailboxWorld::more_payload(Reader& reader) {
  const Node from = any_peer(reader);
  std::vector<Connection*> unfinished;
  for (Connection& connection : peer(from).connections) {
    if (connection.is_in_frame) unfinished.push_back(&connection);
  }
  if (unfinished.empty()) return;
  const std::lock_guard lock(mailbox_->mutex());
  Connection& connection = *unfinished[reader.one_of(unfinished.size())];
  land(from, connection, size_t{reader.byte()} * 16 + 1);
}

void MailboxWorld::flood(Reader& reader) {
  const Node from = any_peer(reader);
  Connection& connection = any_connection(from, reader);
  const uint8_t choices = reader.byte();
  constexpr std::array kinds = {FrameKind::kMessage, FrameKind::kClearToSend, FrameKind::kRequestToSend,
                                FrameKind::kAsk,     FrameKind::kWant,        FrameKind::kOffer,
                                FrameKind::kTell,    FrameKind::kMessage};
  for (size_t i = 0; i < size_t{16} << (choices >> 6) * 2 && !connection.is_in_frame; ++i) {
    Frame frame;
    frame.kind = kinds[choices % kinds.size()];
    frame.tag = {(choices & 8) != 0 ? kPointToPoint : next_stream_, next_unasked_++};
    frame.payload_bytes = frame.kind == FrameKind::kMessage ? kEagerBytes : 0;
    frame.message_bytes = frame.kind == FrameKind::kMessage ? kEagerBytes : 4 * kEagerBytes;
    arrive(from, connection, frame, frame.payload_bytes);
  }
  check_memory();
}

void MailboxWorld::arrive(Node from, Connection& connection, const Frame& frame, size_t bytes) {
  const std::lock_guard lock(mailbox_->mutex());
  Peer& p = peer(from);
  if (p.is_lost || p.channel->is_closed() || connection.has_ended) return;
  p.channel->hear();
  if (connection.is_in_frame) return land(from, connection, bytes);
  const bool is_refused = is_too_long(frame) || (!traits_.reads_peer && frame.kind >= FrameKind::kOffer &&
                                                 frame.kind <= FrameKind::kTaken);
  if (is_refused) {
    connection.has_ended = true;
    return;
  }
  const Result<Bytes> landing = mailbox_->landing(from, frame);
  if (p.channel->is_closed()) return;
  if (!landing.ok()) {
    connection.has_ended = true;  // the peer is lost a little later, like with a wire that drains first
    return;
  }
  require(landing.value().size() == frame.payload_bytes, "a payload has all the room it needs");
  if (frame.kind == FrameKind::kPiece) in_pieces_.insert({from, frame.tag});
  connection.frame = frame;
  connection.missing = landing.value();
  connection.landed = 0;
  connection.is_in_frame = true;
  check_apart(p, connection);
  land(from, connection, bytes);
}

// Pieces of one message may overlap: whoever sends them spoils only what is its own.
void MailboxWorld::check_apart(const Peer& p, const Connection& newest) const {
  const auto overlap = [](ConstBytes a, ConstBytes b) {
    return !a.empty() && !b.empty() && a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
  };
  for (const Connection& other : p.connections) {
    if (&other == &newest || !other.is_in_frame || !overlap(other.missing, newest.missing)) continue;
    const bool are_pieces = other.frame.kind == FrameKind::kPiece && newest.frame.kind == FrameKind::kPiece;
    require(are_pieces && other.frame.tag == newest.frame.tag, "payloads under way land in memory of their own");
  }
}

void MailboxWorld::note(size_t operation) {
  for (const Peer& p : peers_) {
    for (const Connection& one : p.connections) {
      if (!one.is_in_frame) continue;
      const size_t kind = static_cast<size_t>(one.frame.kind) % 16;
      seen_meanwhile[operation % 16][kind] = 1;
      for (const Connection& other : p.connections) {
        if (&other != &one && other.is_in_frame) seen_pairs[kind][static_cast<size_t>(other.frame.kind) % 16] = 1;
      }
    }
  }
}

void MailboxWorld::land(Node from, Connection& connection, size_t bytes) {
  Peer& p = peer(from);
  if (p.is_lost || p.channel->is_closed() || connection.has_ended) return;
  const Frame& frame = connection.frame;
  const size_t now = std::min(bytes, connection.missing.size());
  const uint64_t begin = (frame.kind == FrameKind::kPiece ? frame.offset : 0) + connection.landed;
  for (size_t i = 0; i < now; ++i) connection.missing[i] = content(from, frame.tag, begin + i);
  connection.landed += now;
  connection.missing = connection.missing.subspan(now);
  if (!connection.missing.empty()) return;
  connection.is_in_frame = false;
  mailbox_->arrived(from, frame);
}

void MailboxWorld::lose(Reader& reader) {
  const Node node = any_peer(reader);
  Peer& p = peer(node);
  const bool is_broken =
      std::any_of(p.connections.begin(), p.connections.end(), [](const auto& c) { return c.has_ended; });
  if (!is_broken && reader.byte() % 4 != 0) return;
  const std::lock_guard lock(mailbox_->mutex());
  if (p.is_lost || p.channel->is_closed()) return;
  mailbox_->lost(node, {Code::kPeerLost, rank_text(node) + " is gone", node});
  p.is_lost = true;
  p.channel->close();
}

void MailboxWorld::write_out(Reader& reader) {
  Peer& p = peer(any_peer(reader));
  const std::lock_guard lock(mailbox_->mutex());
  for (size_t frames = reader.one_of(8); frames > 0 && p.channel->write_one(); --frames) {
  }
}

// ---- the owner

void MailboxWorld::start(Reader& reader, bool is_send) {
  const Node node = any_peer(reader);
  const uint64_t stream = any_stream(reader);
  const Tag tag{stream, reader.one_of(8)};
  const size_t bytes = std::min<size_t>(kSizes[reader.one_of(kSizes.size())], 400);
  const auto is_open = [&](const auto& begun) { return begun.first == stream; };
  if (is_collective(tag) && std::none_of(open_.begin(), open_.end(), is_open)) return;
  if (!used_.insert({is_send, node, tag}).second) return;
  auto pending = std::make_unique<Pending>();
  pending->peer = node;
  pending->tag = tag;
  pending->is_send = is_send;
  pending->memory.assign(bytes, kUntouched);
  Pending& p = *pending_.emplace_back(std::move(pending));
  if (is_send) {
    mailbox_->send(node, tag, p.memory, &p.request);
  } else {
    mailbox_->recv(node, tag, p.memory, &p.request);
  }
}

void MailboxWorld::begin(Reader& reader) {
  if (open_.size() == 4) return;
  Signature signature;
  signature.kind = static_cast<uint8_t>(reader.one_of(3));
  signature.bytes = reader.byte();
  open_.emplace_back(next_stream_, signature);
  mailbox_->begin(next_stream_++, signature);
}

bool MailboxWorld::has_pending(uint64_t stream) const {
  return std::any_of(pending_.begin(), pending_.end(), [&](const auto& p) { return p->tag.stream == stream; });
}

void MailboxWorld::end(Reader& reader) {
  if (open_.empty()) return;
  const auto which = open_.begin() + static_cast<ptrdiff_t>(reader.one_of(open_.size()));
  if (has_pending(which->first)) return;
  mailbox_->end_stream(which->first);
  open_.erase(which);
}

void MailboxWorld::ask(Reader& reader) {
  const Node node = any_peer(reader);
  switch (reader.one_of(4)) {
    case 0: mailbox_->ask(); break;
    case 1: require(mailbox_->peer_streams().size() == 3, "there is an answer for every rank"); break;
    case 2: mailbox_->watch_all(); break;
    case 3: (void)mailbox_->look_for_message(node, {any_stream(reader), reader.one_of(8)}); break;
  }
}

void MailboxWorld::check() {
  for (auto at = pending_.begin(); at != pending_.end();) {
    if (!(*at)->request.done()) {
      ++at;
      continue;
    }
    check_received(**at);
    at = pending_.erase(at);
  }
}

void MailboxWorld::check_received(const Pending& done) const {
  if (done.is_send || !done.request.status().ok()) return;
  // Pieces may come twice, and then others never; what a peer offers is read as it lies there.
  const bool is_whole = !traits_.reads_peer && !in_pieces_.contains({done.peer, done.tag});
  for (size_t i = 0; i < done.memory.size(); ++i) {
    const bool is_right = done.memory[i] == content(done.peer, done.tag, i);
    require(is_right || (done.memory[i] == kUntouched && !is_whole), "a receive gets what was sent to its tag");
  }
}

void MailboxWorld::check_memory() const {
  require(heap_bytes() < heap_at_start_ + kMostKeptBytes,
          "what nobody asked for takes a bounded amount of memory");
}

void MailboxWorld::close() {
  check_memory();
  mailbox_->close();
  check();
  require(pending_.empty(), "every request is done when the mailbox is closed");
}

}  // namespace braid::fuzz

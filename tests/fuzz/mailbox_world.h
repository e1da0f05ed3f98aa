// SPDX-License-Identifier: Apache-2.0
// What mailbox_fuzz.cc plays with: a mailbox of rank 0, and two peers behind channels that only keep what is posted.
#pragma once

#include <array>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "fuzz/targets.h"
#include "transport/mailbox.h"

namespace braid::fuzz {

// A wire that writes when it is told to. Reads all of a payload at that moment, as a socket would.
class KeepingChannel final : public Channel {
 public:
  KeepingChannel(FrameSink& sink, ChannelTraits traits, bool writes_at_once)
      : sink_(sink), traits_(traits), writes_at_once_(writes_at_once) {}

  const ChannelTraits& traits() const override { return traits_; }
  void post(const Frame& frame, ConstBytes payload, Request* request) override;
  bool poll() override { return write_one(); }
  Status pull(uint64_t address, Bytes into) override;
  bool connected() override { return !posted_.empty() || heard_; }
  void close() override;

  // What follows is for the peer behind the wire. REQUIRES: the sink's mutex is held.
  bool write_one();
  void hear() { heard_ = true; }
  bool is_closed() const { return is_closed_; }
  // Frames without a payload that the peer was sent and has not answered, oldest first.
  std::deque<Frame>& unanswered() { return unanswered_; }

 private:
  struct Posted {
    Frame frame;
    std::vector<std::byte> copy;  // where there is no request
    ConstBytes payload;
    Request* request = nullptr;
  };

  FrameSink& sink_;
  const ChannelTraits traits_;
  const bool writes_at_once_;
  bool is_closed_ = false;
  bool heard_ = false;
  std::deque<Posted> posted_;
  std::deque<Frame> unanswered_;
};

class MailboxWorld {
 public:
  explicit MailboxWorld(uint8_t wires);

  Mailbox& mailbox() { return *mailbox_; }

  // Tells libFuzzer that this operation comes while frames are under way, and which.
  void note(size_t operation);

  // What peers do. A frame's payload arrives as far as the input says; more_payload() brings more of it.
  void stranger_frame(Reader& reader);
  void honest_frame(Reader& reader);  // one that the mailbox waits for
  void more_payload(Reader& reader);
  void flood(Reader& reader);  // many that nobody asked for
  void lose(Reader& reader);
  void write_out(Reader& reader);

  // What the owner does: by the rules, so a tag is used once, and a stream ends when nothing of it is pending.
  void start(Reader& reader, bool is_send);
  void begin(Reader& reader);
  void end(Reader& reader);
  void ask(Reader& reader);

  // Looks at requests that are done, and frees them.
  void check();
  void close();

 private:
  static constexpr size_t kConnections = 16;

  struct Connection {
    Frame frame;
    Bytes missing;
    size_t landed = 0;
    bool is_in_frame = false;
    bool has_ended = false;  // after a frame against the protocol
  };
  struct Peer {
    KeepingChannel* channel = nullptr;
    std::array<Connection, kConnections> connections;
    bool is_lost = false;
  };
  struct Pending {
    Node peer = 0;
    Tag tag;
    bool is_send = false;
    std::vector<std::byte> memory;
    Request request;
  };

  Node any_peer(Reader& reader) const { return 1 + static_cast<Node>(reader.one_of(2)); }
  Peer& peer(Node node) { return peers_[static_cast<size_t>(node) - 1]; }
  Connection& any_connection(Node from, Reader& reader);
  uint64_t any_stream(Reader& reader) const;
  Signature signature_of(uint64_t stream) const;
  void arrive(Node from, Connection& connection, const Frame& frame, size_t bytes);
  void land(Node from, Connection& connection, size_t bytes);  // REQUIRES: the mailbox's mutex is held
  void check_received(const Pending& done) const;
  void check_apart(const Peer& p, const Connection& newest) const;
  bool has_pending(uint64_t stream) const;
  void check_memory() const;

  const ChannelTraits traits_;
  DoorbellWord bell_;
  std::array<Peer, 2> peers_;
  std::list<std::unique_ptr<Pending>> pending_;  // outlives the mailbox, which may still use what is not done
  std::unique_ptr<Mailbox> mailbox_;
  std::set<std::tuple<bool, Node, Tag>> used_;
  std::set<std::pair<Node, Tag>> in_pieces_;  // messages of which pieces came
  uint64_t next_stream_ = 1;
  uint64_t next_unasked_ = 1000;  // index of a message that nobody asks for
  std::vector<std::pair<uint64_t, Signature>> open_;
  size_t heap_at_start_ = 0;
};

}  // namespace braid::fuzz

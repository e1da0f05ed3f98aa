// SPDX-License-Identifier: Apache-2.0
// A group's messages. The mailbox matches sends with receives by tag, over one channel per peer. Small messages go
// at once, and wait at the receiver if need be. Large messages wait at the sender: until the receiver has posted
// memory (kClearToSend), or until it reads them out of the sender's memory (kOffer). Only messages of at most
// eager_bytes are ever kept for a receiver that has not asked for them.
//
// Limits bound the memory of a receiver, so that no sender can fill it. Both ends know the limits:
// 1. The window. A small message counts from when it is sent until the receiver reports that a receive has got it
//    (kWindowUpdate). One that would exceed early_bytes is announced (kRequestToSend), and waits at the sender like a
//    large one.
// 2. At most `announced` messages are announced (or offered) and unanswered, and at most `small_announced` small
//    ones. Further messages wait at the sender in order. Small ones go whole once the receiver has reported.
// 3. A receiver with this many announcements names the messages it has posted memory for (kWant). These are
//    announced in addition. So receives may be posted in any order, up to `announced` of one peer.
// 4. At most `announced` kClearToSend go before their announcements. After them a receiver waits for
//    announcements.
// A peer that exceeds the limits has broken the protocol and is lost. This is checked before anything is
// allocated.
//
// Messages through a NIC come on credit. The receiver sends kClearToSend for a limited number of bytes at a time,
// of all peers together, so that the queue before its NIC does not overflow. Without credit many senders to one
// NIC would lose packets, and wait for TCP's timeouts. Only announced messages get credit: they are certain to
// come and give it back. The oldest message goes first. A little more is given in advance, which saves the first
// messages a round trip.
//
// If memory runs out, or anything else is thrown while messages are started or moved, the group fails with this
// error and every request is finished. send(), recv(), poll() and all endings throw nothing. At any moment every
// request is in one of the tables, so none is forgotten. Failing needs no memory.
//
// Thread safety: any thread may call the public functions. Callers of FrameSink and of private functions hold mutex();
// callers of all others must not. Nothing blocks.
//
// Mailbox lies in several files: mailbox.cc starts messages; mailbox_arrivals.cc takes frames; mailbox_credit.cc and
// mailbox_window.cc bound the bytes under way; mailbox_waits.cc, mailbox_silence.cc and mailbox_endings.cc tell who is
// awaited, silent or gone.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "transport/channel.h"
#include "transport/doorbell.h"

namespace braid {

class Mailbox final : public FrameSink {
 public:
  // `bell` is rung whenever a request finishes; it must outlive the mailbox.
  Mailbox(Node rank, int ranks, DoorbellWord& bell);
  ~Mailbox() override;

  // Sets the channel to `peer`. Once per peer, before the first message to it.
  void attach(Node peer, std::unique_ptr<Channel> channel);

  // Start a message. The memory must stay valid and, for send, unchanged until the request is done. After a
  // failure of the group, requests finish at once with this failure. Both sizes must agree, or the group fails
  // with kMismatch.
  void send(Node to, Tag tag, ConstBytes bytes, Request* request);
  void recv(Node from, Tag tag, Bytes bytes, Request* request);

  // For a receive from any peer. watch_all() makes the mailbox notice every peer's death. look_for_message() tells
  // whether the peer's message with this tag has arrived early, and if not, whether it can still come.
  struct Glance {
    bool arrived = false;
    Status lost;
    bool left = false;  // in good order
  };
  void watch_all();
  Glance look_for_message(Node from, const Tag& tag);

  // What one peer may send before the receiver asks. All ranks of a group have the same limits.
  struct Limits {
    size_t early_bytes = 0;       // of small messages, plus 256 for each
    size_t announced = 0;         // messages
    size_t small_announced = 16;  // small messages among `announced` that are not offered
    static Limits of(int ranks);  // 64 MiB / peers, at least 256 KiB and at most 4 MiB; 65536; 16
  };
  // Replaces Limits::of(ranks). Call it before the first message.
  void set_limits(const Limits& limits);

  // Sets the credit: how many bytes of large messages may be under way to this rank's NIC. One message is always
  // allowed, whatever its size. The last message may exceed the credit by half its size.
  void set_credit(size_t bytes);
  // Calls Channel::pace() of the peer's channel.
  void pace(Node peer, double bytes_per_s);

  // ---- Peers that are silent (mailbox_silence.cc). A peer is needed while messages to or from it are pending.
  // These two functions add needed peers: peers that somebody waits for on a board (`elsewhere`), or all peers,
  // for a receive from any rank.
  void need(std::vector<Node> elsewhere);
  void need_all(bool yes);
  // Sets the name of the peer in the error if it is lost for its silence: "rank 3 (host n1, pid 4711)".
  void set_name(Node peer, std::string name);
  // Ranks of this group mean nothing to users: errors leave them out.
  void hide_ranks();
  // From now on a needed peer that is silent for `after` is lost. The mailbox calls `start`, with mutex() held,
  // when a peer may be needed. Then calls of look_for_silence() must begin.
  void lose_silent(milliseconds after, std::function<void()> start);
  // One look; `step` has passed since the last look. Returns false if no peer was needed in the last few looks.
  // Then no more looks are needed until the next `start`.
  bool look_for_silence(milliseconds step);

  // begin() also writes the stream to `word`, for wires whose peers can read it without our help (shared memory).
  void publish_at(std::atomic<uint64_t>* word);

  // How error messages name the codecs of signatures.
  void name_codecs(CodecName codec_name) { codec_name_ = codec_name; }
  // Says that this rank is now in collective `stream`. Messages of peers in this stream must carry the same signature.
  // Otherwise the group fails: the ranks have called different operations.
  void begin(uint64_t stream, const Signature& signature);
  void end_stream(uint64_t stream);

  // Moves all messages that can move. True if anything moved.
  bool poll();

  // Fails all pending and future requests, and tells the peers the reason. The first failure stays.
  void fail(const Status& why);
  // The same for an exception on this rank: the message names the rank.
  void fail_here(const Status& why);
  // Leaves in good order: peers see no failure unless they still wait for this rank.
  void close();
  Status failure() const;
  // failure(), or kAborted if the mailbox is closed; ok before both.
  Status ending() const;
  // For callers that poll; need no lock. has_ended(): ending() is not ok. has_lost(): a peer is lost or has left.
  bool has_ended() const { return has_ended_.load(std::memory_order_acquire); }
  bool has_lost() const { return has_lost_.load(std::memory_order_acquire); }

  // For the error message of a timeout. ask() asks all peers which stream they are in. peer_streams(), called
  // later, returns per peer the last stream that it began, or -1 if it is not known.
  void ask();
  std::vector<int64_t> peer_streams();
  // For a notice, which must not open needless connections: asks these nodes, and all other peers that are
  // connected.
  void ask(const std::vector<Node>& nodes);
  // Why a message has not come or gone yet, as far as this rank knows; "" if it knows nothing.
  std::string missing_of(const Request* request) const;

  // FrameSink, for channels only.
  std::mutex& mutex() override { return mutex_; }
  Result<Bytes> landing(Node from, const Frame& frame) override;
  void arrived(Node from, const Frame& frame) override;
  void written(Request* request) override;
  bool awaits(size_t bytes) const override;
  void lost(Node peer, Status why) override;
  void broke(const Status& why) override;

 private:
  enum class Credit { kNone, kInAdvance, kGranted };
  struct PostedReceive {
    Bytes bytes;
    Request* request = nullptr;
    size_t received_bytes = 0;
    size_t landing_bytes = 0;       // size of the pieces that have begun to arrive
    bool is_landing = false;        // a whole message has begun to arrive
    bool announced = false;         // its sender has announced it
    Credit credit = Credit::kNone;  // the credit on which kClearToSend was sent
  };
  struct WaitingSend {  // a send that may not go yet, or that is offered and not yet taken
    ConstBytes bytes;
    Request* request = nullptr;
    uint64_t turn = 0;  // its key in Peer::unannounced; 0: it is announced or offered
  };
  struct EarlyFrame {  // a frame that arrived before its receive was posted
    Frame frame;
    std::vector<std::byte> payload;  // kMessage only
    bool complete = false;
    PostedReceive waiting;  // posted while the payload was still arriving
  };
  struct Writing {  // a send handed to the channel
    Node to = -1;
    size_t frames_left = 0;
  };
  struct Ended {  // a stream that has ended here
    uint64_t stream = 0;
    Signature signature;
  };
  struct Peer {
    std::unique_ptr<Channel> channel;
    Status lost;  // why no more messages can be exchanged
    // Why an offer could not be read; poll() fails the group with it, or with the peer's reason.
    Status unreadable;
    bool left = false;
    std::map<Tag, PostedReceive> receives;
    std::map<Tag, WaitingSend> sends;
    std::map<Tag, EarlyFrame> early;  // kMessage and kOffer
    std::map<Tag, Frame> clearances;  // kClearToSend that came before the send
    std::map<Tag, Frame> announced;   // kRequestToSend that came before the receive
    // For messages to this peer.
    size_t unreported_bytes = 0;  // sent as kMessage, minus the bytes reported by kWindowUpdate
    size_t unanswered = 0;        // the number of `sends` that are announced or offered
    size_t unanswered_small = 0;  // the small ones among `unanswered`
    uint64_t turns = 0;
    std::map<uint64_t, Tag> unannounced;  // the other `sends`, by turn
    std::set<Tag> wanted;                 // kWant that came before the send
    // For messages from this peer.
    size_t kept_bytes = 0;    // size of the kMessages in `early`
    size_t handed_bytes = 0;  // handed to receives, not reported yet
    size_t offers = 0;        // the number of offers in `early`
    size_t small = 0;         // the number of small messages in `announced`
    size_t ahead = 0;         // the number of `receives` whose kClearToSend was sent before the announcement
    bool is_full = false;     // set when the announcements reach a limit, until they are half of it
    std::set<Tag> wants;      // kWant was sent
    std::set<Tag> withheld;   // kWant is held back: too many were sent
    std::set<Tag> overtaken;  // messages whose pieces came before their announcement
    Clock::time_point told_at;
    bool gives_reason = false;  // its kFail has begun to arrive
    std::string reason;         // the payload of its kFail
    int64_t told_stream = -1;
    std::string name;       // or ""
    milliseconds silent{};  // how long it has been needed and silent
    bool asked = false;     // a kAsk was sent since the peer was last heard
  };

  Peer& peer(Node node) { return peers_[static_cast<size_t>(node)]; }
  Signature signature_of(const Tag& tag) const;
  void start_send(Node to, Tag tag, ConstBytes bytes, Request* request);
  void start_recv(Node from, Tag tag, Bytes bytes, Request* request);
  bool poll_channels();
  // Returns false, and finishes the request, if no message may be started with this peer any more.
  bool admit(Node node, Request* request);
  void post_control(Node to, FrameKind kind, Tag tag, uint64_t message_bytes, ConstBytes payload = {},
                    uint64_t offset = 0);
  void post_whole(Node to, Tag tag, ConstBytes bytes, Request* request);
  void post_pieces(Node to, Tag tag, ConstBytes bytes, Request* request, bool was_announced);
  // A receive was posted, or its message was announced: lets the sender send as soon as the limits allow.
  void let_come(Node from, const Tag& tag);
  void ask_credit(Node from, const Tag& tag);
  void grant_waiting();
  void give_back(Node from, const PostedReceive& receive);
  // mailbox_window.cc. At a sender: counts a small message and returns true if it may go at once.
  bool enter_window(Peer& to, size_t bytes);
  bool may_announce(const Peer& to, size_t bytes) const;
  void announce(Node to, Tag tag);
  // Sends or announces the next messages: the window has room again, or an announcement was answered.
  void send_next(Node to);
  WaitingSend take_send(Peer& to, std::map<Tag, WaitingSend>::iterator found);
  void on_want(Node from, const Tag& tag);
  // At a receiver: counts an early message and returns true if it may be kept.
  bool keep(Peer& from, size_t bytes);
  void drop_early(Peer& from, std::map<Tag, EarlyFrame>::iterator found);
  void handed_over(Node from, size_t bytes);
  void drop_announced(Peer& from, std::map<Tag, Frame>::iterator found);
  void filled_up(Node from);   // one more announcement or offer is kept
  void came_down(Peer& from);  // one announcement or offer less is kept
  void want(Node from, const Tag& tag);
  void has_come(Node from, const Tag& tag);  // want() is settled
  // The limit that a frame exceeds, together with all frames before it; or "".
  std::string excess(const Peer& from, const Frame& frame) const;
  void take_offer(Node from, const Frame& offer, Bytes into, Request* request);
  void on_message(Node from, const Frame& frame);
  void on_clear_to_send(Node from, const Frame& frame);
  void on_piece(Node from, const Frame& frame);
  void on_offer(Node from, const Frame& frame);
  void on_request_to_send(Node from, const Frame& frame);
  void on_ask(Node from);
  void finish(Request* request, Status status);
  std::vector<char> needed_peers() const;  // per peer: 1 if it is needed
  void start_looking();
  // Wakes receivers that may wait for a message from any rank.
  void kept(const Tag& tag);
  // Fails the group and tells connected peers, which may wait for us. `everyone`: tells all peers, and opens
  // connections only to tell them.
  void fail_locked(const Status& why, bool everyone = false);
  Status without_number(Node node, Status why);
  void drop_all(const Status& why);  // closes all channels and finishes every request
  // Return false, and fail the group, if the peer has another operation or another size than this rank.
  bool agrees(Node from, const Frame& frame);
  bool fits(Node from, const Frame& frame, size_t expected_bytes);

  const Node rank_;
  DoorbellWord& bell_;
  const std::string last_words_;  // packed reason for peers, used if there is no memory to pack the true reason

  mutable std::mutex mutex_;
  std::vector<Peer> peers_;
  std::unordered_map<uint64_t, Signature> streams_;  // streams that have begun and not ended
  std::deque<Ended> ended_;                          // the last streams that have ended
  std::unordered_map<Request*, Writing> writing_;
  std::set<std::pair<Tag, Node>> waiting_;  // announced and posted, but without credit yet
  Limits limits_;
  CodecName codec_name_ = nullptr;
  size_t credit_bytes_ = 1024 * 1024;
  size_t granted_bytes_ = 0;
  size_t advanced_bytes_ = 0;
  uint64_t current_stream_ = 0;
  std::atomic<uint64_t>* published_ = nullptr;
  Status failure_;
  std::atomic<bool> has_ended_{false};
  std::atomic<bool> has_lost_{false};
  bool closed_ = false;

  milliseconds silence_{};  // after this a silent peer is lost; 0: never
  std::function<void()> start_looking_;
  bool is_looking_ = false;
  int idle_looks_ = 0;
  std::vector<Node> needed_elsewhere_;
  bool needs_all_ = false;
  bool hides_ranks_ = false;
};

}  // namespace braid

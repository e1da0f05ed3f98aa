// SPDX-License-Identifier: Apache-2.0
// A group's messages. The mailbox matches sends with receives by tag, over one channel per peer. Small messages go
// at once, and wait at the receiver if need be. Large messages wait at the sender: until the receiver has posted
// memory (kClearToSend), or until it reads them out of the sender's memory (kOffer). Only messages of at most
// eager_bytes are ever kept for a receiver that has not asked for them.
//
// Limits bound what a receiver keeps, so that no sender can fill its memory. Both ends know them:
// 1. Small messages count from when they are sent until the receiver reports that receives have got them (kCredit). One
//    that would exceed early_bytes is announced (kRequestToSend), and waits at the sender like a large one.
// 2. At most `announced` messages are announced (or offered) and unanswered, and at most `small_announced` small ones.
//    Further messages wait at the sender in order. Small ones go whole once the receiver has reported.
// 3. A receiver with this many announcements names the messages it has posted memory for (kWant). These are announced
//    in addition. So receives may be posted in any order, up to `announced` of one peer.
// 4. At most `announced` kClearToSend go before their announcements. After them a receiver waits for announcements.
// A peer that exceeds the limits has broken the protocol and is lost. This is checked before anything is
// allocated.
//
// Messages through a NIC come on credit. The receiver sends kClearToSend for a limited number of bytes at a time,
// of all peers together, so that the queue before its NIC does not overflow. Without credit many senders to one
// NIC would lose packets, and wait for TCP's timeouts. Only announced messages get credit: they are certain to
// come and give it back. The oldest message goes first. A little more is given in advance, which saves the first
// messages a round trip.
//
// If memory runs out or anything else is thrown while messages are started or moved, the group fails with it and
// every request is finished. send(), recv(), poll() and all endings throw nothing. At any moment a request is in
// one of the tables, so none is forgotten, and failing needs no memory.
//
// Thread safety: all public functions may be called from any thread. Nothing blocks.
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

  // Sets the wire to `peer`. Once per peer, before the first message to it.
  void attach(Node peer, std::unique_ptr<Channel> channel);

  // Start a message. The memory stays valid and, for send, unchanged until the request is done. After a failure
  // requests finish at once with it. Sizes must agree, or the group fails with kMismatch.
  void send(Node to, Tag tag, ConstBytes bytes, Request* request);
  void recv(Node from, Tag tag, Bytes bytes, Request* request);

  // For a receive from any peer. watch_all() makes every peer's death be seen; look() tells whether the peer's
  // message of this tag has arrived unasked for, and if not, why it never will.
  struct Glance {
    bool arrived = false;
    Status lost;
    bool left = false;  // in good order
  };
  void watch_all();
  Glance look(Node from, const Tag& tag);

  // What one peer may send before the receiver asks. All ranks of a group have the same limits.
  struct Limits {
    size_t early_bytes = 0;       // of small messages, plus 256 for each
    size_t announced = 0;         // messages
    size_t small_announced = 16;  // of them, small ones that are not offered
    static Limits of(int ranks);  // 64 MiB / peers, at least 256 KiB and at most 4 MiB; 65536; 16
  };
  // Limits other than Limits::of(ranks). Before the first message.
  void set_limits(const Limits& limits);

  // The credit: how many bytes of large messages may be under way to this rank's NIC. One message always may,
  // whatever its size. The last message may exceed the credit by half its size.
  void set_credit(size_t bytes);
  // Calls Channel::pace() of the peer's channel.
  void pace(Node peer, double bytes_per_s);

  // ---- Peers that are silent (mailbox_silence.cc). A peer is needed while messages to or from it are pending, and
  // while somebody says so here: one that waits for them `elsewhere`, on a board, and a receive from any rank.
  void need(std::vector<Node> elsewhere);
  void need_all(bool yes);
  // How a peer is called when it is lost for its silence: "rank 3 (host n1, pid 4711)".
  void set_name(Node peer, std::string name);
  // A peer that is needed and not heard of for so long is lost. `start` is called, with mutex() held, when somebody may
  // be needed; then the looks below begin.
  void lose_silent(milliseconds after, std::function<void()> start);
  // `step` has passed since the last look. False, and no more looks until the next start, when nobody has been needed
  // for a few of them.
  bool look_for_silence(milliseconds step);

  // begin() also writes the stream here, for wires whose peers can read it without our help (shared memory).
  void publish_at(std::atomic<uint64_t>* word);

  // Says that this rank is now in collective `stream`. Messages of peers for it must carry the same intent.
  void begin(uint64_t stream, const Intent& intent);
  void end(uint64_t stream);

  // Moves what can move. True when anything did.
  bool poll();

  // Fails everything pending and everything to come, and tells the peers why. The first failure stays.
  void fail(const Status& why);
  // The same, for what was thrown on this rank: says on which.
  void fail_here(const Status& why);
  // Leaves in good order: peers see no failure unless they still wait for this rank.
  void close();
  Status failure() const;
  // failure(), or kAborted when the mailbox is closed; ok before either.
  Status end() const;
  // Without a lock, for those who poll: whether end() is not ok, and whether any peer is lost or has left.
  bool has_ended() const { return has_ended_.load(std::memory_order_acquire); }
  bool has_lost() const { return has_lost_.load(std::memory_order_acquire); }

  // For the error message of a timeout: asks all peers which stream they are in (ask), later reads what is known
  // (peer_streams): per peer the last stream it began, or -1 where nothing was heard.
  void ask();
  std::vector<int64_t> peer_streams();
  // For a notice, which must not disturb: asks these, and of the others those to whom there is a connection already.
  void ask(const std::vector<Node>& nodes);
  // Why a message has not come or gone yet, as far as this rank knows; empty when there is nothing to say.
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
    size_t landing_bytes = 0;       // of the pieces that have begun to arrive
    bool is_landing = false;        // a whole message has begun to arrive
    bool announced = false;         // its sender has announced it
    Credit credit = Credit::kNone;  // the credit on which kClearToSend was sent
  };
  struct WaitingSend {  // not yet allowed to go (or offered, not yet taken)
    ConstBytes bytes;
    Request* request = nullptr;
    uint64_t turn = 0;  // in Peer::unannounced; 0: it is announced or offered
  };
  struct EarlyFrame {  // arrived before its receive was posted
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
    Intent intent;
  };
  struct Peer {
    std::unique_ptr<Channel> channel;
    Status lost;        // why nothing more can be exchanged
    Status unreadable;  // of an offer: poll() fails the group with it, unless the peer gives a better reason
    bool left = false;
    std::map<Tag, PostedReceive> receives;
    std::map<Tag, WaitingSend> sends;
    std::map<Tag, EarlyFrame> early;  // kMessage and kOffer
    std::map<Tag, Frame> clearances;  // kClearToSend that came before the send
    std::map<Tag, Frame> announced;   // kRequestToSend that came before the receive
    // For messages to this peer.
    size_t unreported_bytes = 0;  // sent as kMessage, less kCredit
    size_t unanswered = 0;        // of `sends`: announced or offered
    size_t unanswered_small = 0;  // of them, small ones
    uint64_t turns = 0;
    std::map<uint64_t, Tag> unannounced;  // of `sends`, by turn
    std::set<Tag> wanted;                 // kWant that came before the send
    // For messages from this peer.
    size_t kept_bytes = 0;    // kMessages in `early`
    size_t handed_bytes = 0;  // to receives, not reported yet
    size_t offers = 0;        // in `early`
    size_t small = 0;         // in `announced`
    size_t ahead = 0;         // of `receives`: kClearToSend was sent before the announcement
    bool is_full = false;     // set when the announcements reach a limit, until they are half of it
    std::set<Tag> wants;      // kWant was sent
    std::set<Tag> withheld;   // kWant is held back: too many were sent
    std::set<Tag> overtaken;  // messages whose pieces came before their announcement
    Clock::time_point told_at;
    bool gives_reason = false;  // its kFail has begun to arrive: there is one
    std::string reason;         // that kFail's payload
    int64_t told_stream = -1;
    std::string name;       // or ""
    milliseconds silent{};  // while needed
    bool asked = false;     // whether it is there, since it was last heard
  };

  Peer& peer(Node node) { return peers_[static_cast<size_t>(node)]; }
  Intent intent_of(const Tag& tag) const;
  void start_send(Node to, Tag tag, ConstBytes bytes, Request* request);
  void start_recv(Node from, Tag tag, Bytes bytes, Request* request);
  bool poll_channels();
  // False, with the request finished, when nothing may be started with this peer any more.
  bool admit(Node node, Request* request);
  void post_control(Node to, FrameKind kind, Tag tag, uint64_t message_bytes, ConstBytes payload = {},
                    uint64_t offset = 0);
  void post_whole(Node to, Tag tag, ConstBytes bytes, Request* request);
  void post_pieces(Node to, Tag tag, ConstBytes bytes, Request* request, bool was_announced);
  // A receive is posted, or its message is announced: lets the sender send, as soon as it may.
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
  void filled_up(Node from);   // another announcement or offer is kept
  void came_down(Peer& from);  // one less is
  void want(Node from, const Tag& tag);
  void has_come(Node from, const Tag& tag);  // want() is settled
  // Which limit a frame exceeds, counting all frames before it; or "".
  std::string excess(const Peer& from, const Frame& frame) const;
  void take_offer(Node from, const Frame& offer, Bytes into, Request* request);
  void on_message(Node from, const Frame& frame);
  void on_clear_to_send(Node from, const Frame& frame);
  void on_piece(Node from, const Frame& frame);
  void on_offer(Node from, const Frame& frame);
  void on_request_to_send(Node from, const Frame& frame);
  void on_ask(Node from);
  void finish(Request* request, Status status);
  // By peer.
  std::vector<char> needed_peers() const;
  void start_looking();
  // Wakes who may be waiting for a message from anybody.
  void kept(const Tag& tag);
  // Tells those who may be waiting for us, or `everyone`, at the price of connections made for nothing else.
  void fail_locked(const Status& why, bool everyone = false);
  void drop_all(const Status& why);  // closes all channels and finishes every request
  // False, with the group failed, when the peer means another operation or another size than we do.
  bool agrees(Node from, const Frame& frame);
  bool fits(Node from, const Frame& frame, size_t expected_bytes);

  const Node rank_;
  DoorbellWord& bell_;
  const std::string last_words_;  // for peers, packed, should there be no memory to pack the reason

  mutable std::mutex mutex_;
  std::vector<Peer> peers_;
  std::unordered_map<uint64_t, Intent> streams_;  // begun and not ended
  std::deque<Ended> ended_;                       // the last few
  std::unordered_map<Request*, Writing> writing_;
  std::set<std::pair<Tag, Node>> waiting_;  // announced and posted, but without credit yet
  Limits limits_;
  size_t credit_bytes_ = 1024 * 1024;
  size_t granted_bytes_ = 0;
  size_t advanced_bytes_ = 0;
  uint64_t current_stream_ = 0;
  std::atomic<uint64_t>* published_ = nullptr;
  Status failure_;
  std::atomic<bool> has_ended_{false};
  std::atomic<bool> has_lost_{false};
  bool closed_ = false;

  milliseconds silence_{};  // 0: any
  std::function<void()> start_looking_;
  bool is_looking_ = false;
  int idle_looks_ = 0;
  std::vector<Node> needed_elsewhere_;
  bool needs_all_ = false;
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// A group's messages: matches sends with receives by tag, over one channel per peer. Small messages go at once and
// wait at the receiver if need be; large ones wait at the sender until the receiver has posted memory (kReady), or
// are read by the receiver out of the sender's memory (kOffer). Only messages of at most eager_bytes are ever kept
// for a receiver that has not asked for them yet.
//
// What comes through a network card comes on credit: the receiver says kReady for so many bytes at a time, of all
// peers together, that the queue before its card does not overflow. Many senders to one card would else lose frames,
// and wait for timeouts of TCP's. Credit is for messages that are announced, so what holds it is under way and will
// give it back; the oldest goes first. A little more is given in advance, to save the first messages the way.
//
// Thread safety: all public functions may be called from any thread. Nothing blocks.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/channel.h"
#include "transport/doorbell.h"

namespace braid {

class Mailbox final : public FrameSink {
 public:
  // `bell` is rung whenever a request finishes; it must outlive the mailbox.
  Mailbox(Node rank, int ranks, DoorbellWord& bell);
  ~Mailbox() override;

  // Gives the wire to `peer`. Once per peer, before the first message to it.
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

  // How much of large messages may be under way to this rank's card at a time. One message may, whatever its
  // size, and the last may go beyond it by half.
  void set_credit(size_t bytes);
  // Channel::pace() of the peer's.
  void pace(Node peer, double bytes_per_s);

  // begin() also writes the stream here, for wires whose peers can read it without our help (shared memory).
  void publish_at(std::atomic<uint64_t>* word);

  // Announces that this rank is now in collective `stream`; peers' messages for it must carry the same intent.
  void begin(uint64_t stream, const Intent& intent);
  void end(uint64_t stream);

  // Moves what can move. True when anything did.
  bool poll();

  // Fails everything pending and everything to come, and tells the peers why. The first failure stays.
  void fail(const Status& why);
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
  uint64_t current_stream() const;

  // FrameSink, for channels only.
  std::mutex& mutex() override { return mutex_; }
  Result<Bytes> landing(Node from, const Frame& frame) override;
  void arrived(Node from, const Frame& frame) override;
  void written(Request* request) override;
  bool awaits(size_t bytes) const override;
  void lost(Node peer, Status why) override;

 private:
  enum class Credit { kNone, kInAdvance, kGranted };
  struct PostedReceive {
    Bytes bytes;
    Request* request = nullptr;
    size_t received_bytes = 0;
    size_t landing_bytes = 0;       // of pieces that have begun to arrive
    bool is_landing = false;        // a whole message has
    Credit credit = Credit::kNone;  // on which the sender may send it
  };
  struct WaitingSend {  // large, not yet allowed to go (or offered, not yet taken)
    ConstBytes bytes;
    Request* request = nullptr;
    Intent intent;
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
    std::map<Tag, Frame> readies;     // kReady that came before the send
    std::map<Tag, Frame> announced;   // kAnnounce that came before the receive
    std::string control;              // payload of an arriving kFail
    int64_t told_stream = -1;
  };

  Peer& peer(Node node) { return peers_[static_cast<size_t>(node)]; }
  Intent intent_of(const Tag& tag) const;
  // False, with the request finished, when nothing may be started with this peer any more.
  bool admit(Node node, Request* request);
  void post_control(Node to, FrameKind kind, Tag tag, uint64_t message_bytes, ConstBytes payload = {},
                    uint64_t offset = 0);
  void post_whole(Node to, Tag tag, ConstBytes bytes, Request* request);
  void post_pieces(Node to, Tag tag, ConstBytes bytes, Request* request);
  // A large receive is posted, or `announced` by its sender: lets the sender send when there is credit.
  void ask_credit(Node from, const Tag& tag, bool announced);
  void grant_waiting();
  void give_back(const PostedReceive& receive);
  void take_offer(Node from, const Frame& offer, Bytes into, Request* request);
  void on_message(Node from, const Frame& frame);
  void on_ready(Node from, const Frame& frame);
  void on_piece(Node from, const Frame& frame);
  void on_offer(Node from, const Frame& frame);
  void on_announce(Node from, const Frame& frame);
  void finish(Request* request, Status status);
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

  mutable std::mutex mutex_;
  std::vector<Peer> peers_;
  std::unordered_map<uint64_t, Intent> streams_;  // begun and not ended
  std::deque<Ended> ended_;                       // the last few
  std::unordered_map<Request*, Writing> writing_;
  std::set<std::pair<Tag, Node>> waiting_;  // announced and posted, without credit yet
  size_t credit_bytes_ = 1024 * 1024;
  size_t granted_bytes_ = 0;
  size_t advanced_bytes_ = 0;
  uint64_t current_stream_ = 0;
  std::atomic<uint64_t>* published_ = nullptr;
  Status failure_;
  std::atomic<bool> has_ended_{false};
  std::atomic<bool> has_lost_{false};
  bool closed_ = false;
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "links/probe.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>

namespace braid {
namespace {

constexpr size_t kPieceBytes = 16 * 1024;
// The number of lanes to all peers together; each has one piece under way. A probe begins with a few lanes, so
// that the queue of a slow NIC holds their pieces: a full queue drops packets, and TCP waits. Later it uses as
// many lanes as the NIC passes pieces in kInFlight.
constexpr size_t kFirstLanes = 12;
constexpr size_t kMostLanes = 128;
constexpr milliseconds kInFlight{14};
// The burst of token buckets and buffers is over after this time, and is not counted.
constexpr milliseconds kBurst{16};
constexpr milliseconds kFirstLook{26};
constexpr milliseconds kWarmUp{40};
constexpr milliseconds kLeastTime{80};
constexpr milliseconds kMostTime{400};
constexpr int kEnoughPieces = 48;

double span_s(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Counts the pieces that pass, from the end of the warm-up to the last one. Chooses the number of lanes by them.
class Meter {
 public:
  // One more piece has passed.
  void count() {
    const auto now = Clock::now();
    if (begun_ == Clock::time_point{}) begun_ = now;
    const auto spent = now - begun_;
    if (spent < kWarmUp) {
      from_ = to_ = now;
      if (spent < kBurst) return;
      ++warm_up_pieces_;
      if (spent < kFirstLook) return;
      const double in_flight = static_cast<double>(warm_up_pieces_) * (span_s(kInFlight) / span_s(spent - kBurst));
      lanes_ = std::clamp(static_cast<size_t>(in_flight), lanes_, kMostLanes);
    } else {
      ++pieces_;
      to_ = now;
    }
  }
  bool has_enough() const {
    if (begun_ == Clock::time_point{}) return false;
    const auto counted = Clock::now() - begun_ - kWarmUp;
    return (counted >= kLeastTime && pieces_ >= kEnoughPieces) || counted >= kMostTime;
  }
  size_t lanes() const { return lanes_; }
  double bytes_per_s() const {
    const double spent_s = span_s(to_ - from_);
    return spent_s > 0 ? static_cast<double>(pieces_ * kPieceBytes) / spent_s : 0.0;
  }

 private:
  Clock::time_point begun_{}, from_{}, to_{};
  size_t warm_up_pieces_ = 0;
  size_t pieces_ = 0;
  size_t lanes_ = 0;
};

// Carries one piece after another between two ranks. The receiver asks for each piece. The question for the next
// piece acknowledges the last one.
struct Lane {
  enum class State { kClosed, kAsked, kSending, kOver };

  State state = State::kClosed;
  Node peer = -1;
  uint64_t number = 0;  // of the current piece; all lanes to one peer share the numbers
  std::vector<std::byte> piece;
  std::array<std::byte, 8> question{};
  Request piece_request, question_request;
};

// One rank's side of a probe. `one` ends the probe: its last piece or its last question says so.
class Probe {
 public:
  Probe(ControlChannel& control, const std::vector<Node>& peers, size_t lanes_per_peer, bool sends, bool decides)
      : control_(control), sends_(sends), decides_(decides), stride_(lanes_per_peer) {
    count_ = peers.size() * lanes_per_peer;
    lanes_ = std::make_unique<Lane[]>(count_);
    for (size_t i = 0; i < count_; ++i) {
      lanes_[i].peer = peers[i % peers.size()];
      lanes_[i].number = i / peers.size();
      lanes_[i].piece.resize(kPieceBytes);
    }
  }

  Result<double> run() {
    const std::span lanes(lanes_.get(), count_);
    Status bad = control_.wait([&] {
      ends_ = ends_ || (decides_ && meter_.has_enough());
      size_t over = 0;
      for (size_t i = 0; i < count_; ++i) {
        Lane& lane = lanes[i];
        if (lane.state != Lane::State::kOver) sends_ ? advance_sender(lane) : advance_receiver(lane, i);
        over += lane.state == Lane::State::kOver;
      }
      return over == count_;
    });
    if (!bad.ok()) return bad;
    return decides_ ? meter_.bytes_per_s() : 0.0;
  }

 private:
  static constexpr std::byte kLast{1};

  void advance_sender(Lane& lane) {
    switch (lane.state) {
      case Lane::State::kSending:
        if (!lane.piece_request.done()) return;
        lane.number += stride_;
        if (lane.piece[0] == kLast) {
          lane.state = Lane::State::kOver;
          return;
        }
        [[fallthrough]];
      case Lane::State::kClosed:
        control_.start_recv(lane.peer, lane.number, lane.question, &lane.question_request);
        lane.state = Lane::State::kAsked;
        return;
      case Lane::State::kAsked:
        if (!lane.question_request.done()) return;
        if (lane.question[0] == kLast) {
          lane.state = Lane::State::kOver;
          return;
        }
        if (lane.number >= stride_) meter_.count();  // the lane's last piece has arrived
        if (ends_) lane.piece[0] = kLast;
        control_.start_send(lane.peer, lane.number, lane.piece, &lane.piece_request);
        lane.state = Lane::State::kSending;
        return;
      case Lane::State::kOver: return;
    }
  }

  void advance_receiver(Lane& lane, size_t index) {
    if (lane.state == Lane::State::kClosed) {
      if (ends_ || index < std::max(open_at_first(), meter_.lanes())) ask(lane);
    } else if (lane.question[0] == kLast) {
      if (lane.question_request.done()) lane.state = Lane::State::kOver;
    } else if (lane.piece_request.done() && lane.question_request.done()) {
      meter_.count();
      lane.number += stride_;
      if (lane.piece[0] == kLast) {
        ends_ = true;
        lane.state = Lane::State::kOver;
      } else {
        ask(lane);
      }
    }
  }
  // Called by a receiver. At the end it also closes the lanes that were never opened.
  void ask(Lane& lane) {
    if (ends_ && (decides_ || lane.number < stride_)) {
      lane.question[0] = kLast;
    } else {
      control_.start_recv(lane.peer, lane.number, lane.piece, &lane.piece_request);
    }
    control_.start_send(lane.peer, lane.number, lane.question, &lane.question_request);
    lane.state = Lane::State::kAsked;
  }
  // The number of lanes to open, to all peers together.
  size_t open_at_first() const {
    const size_t peers = decides_ ? count_ / stride_ : kMostLanes / stride_;
    const size_t of_peer = std::max(kFirstLanes / peers, size_t{1});
    return decides_ ? of_peer * peers : of_peer;
  }

  ControlChannel& control_;
  const bool sends_;
  const bool decides_;
  const size_t stride_;  // the number of lanes per peer
  size_t count_ = 0;
  bool ends_ = false;  // this rank knows that the probe ends
  std::unique_ptr<Lane[]> lanes_;
  Meter meter_;
};

}  // namespace

Result<double> probe_rate(ControlChannel& control, Node rank, Node one, const std::vector<Node>& others,
                          bool outwards) {
  control.next_step();
  const bool is_one = rank == one;
  const size_t lanes = std::max(kMostLanes / std::max(others.size(), size_t{1}), size_t{1});
  return Probe(control, is_one ? others : std::vector<Node>{one}, lanes, is_one == outwards, is_one).run();
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "communicator/survey.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>

namespace braid {
namespace {

constexpr uint64_t kStream = 0;  // collectives count from 1
constexpr size_t kPieceBytes = 64 * 1024;
// Pieces under way to or from one host, and from one host to another.
constexpr int kMostUnderWay = 16;
constexpr int kFewestSlots = 2;
constexpr int kMostSlots = 8;
constexpr milliseconds kWarmUp{30};
constexpr milliseconds kLeastTime{80};
constexpr milliseconds kMostTime{300};
constexpr int kEnoughPieces = 24;
constexpr int kPings = 15;
constexpr size_t kPasses = 2;
constexpr double kNoise = 0.08;
constexpr uint64_t kLastSteps = 1 << 20;  // behind all probes

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// One direction of a stream between two ranks: a few pieces in flight, each in a slot of its own.
struct Slot {
  Request request;
  std::vector<std::byte> piece;
  Node peer = -1;
  uint64_t next = 0;  // number of the next piece of this slot
  bool over = false;
};

class Surveyor {
 public:
  Surveyor(Mailbox& mailbox, DoorbellWord& bell, Node rank, const std::vector<int>& hosts, Deadline deadline)
      : mailbox_(mailbox), bell_(bell), rank_(rank), hosts_(hosts), deadline_(deadline) {
    for (Node node = 0; node < static_cast<Node>(hosts.size()); ++node) {
      if (hosts[static_cast<size_t>(node)] == static_cast<int>(leaders_.size())) leaders_.push_back(node);
    }
    const int others = static_cast<int>(leaders_.size()) - 1;
    slots_ = static_cast<size_t>(std::clamp(kMostUnderWay / std::max(others, 1), kFewestSlots, kMostSlots));
  }

  Result<Survey> run(Link within_host, const std::string& known) {
    auto told = tell(known);
    if (!told.ok()) return told.status();
    if (!told.value().empty()) return read(told.value(), false);
    std::vector<double> found;  // per pass and host: up, down; as far as this rank has seen
    double alpha_s = 0;
    if (is_leader()) {
      if (Status bad = measure_latency(&alpha_s); !bad.ok()) return bad;
      for (size_t i = 0; i < kPasses * 2 * leaders_.size(); ++i) {
        auto rate = probe(leaders_[i / 2 % leaders_.size()], i % 2 == 0);
        if (!rate.ok()) return rate.status();
        found.push_back(rate.value());
      }
    }
    return agree(within_host, alpha_s, std::move(found));
  }

 private:
  bool is_leader() const { return leaders_[static_cast<size_t>(hosts_[static_cast<size_t>(rank_)])] == rank_; }
  Tag tag(uint64_t number) const { return {kStream, step_ << 32 | number}; }

  // Until `done` says so; it is asked after everything that moved.
  template <class Done>
  Status wait(Done done) {
    Waiter waiter(bell_);
    while (!done()) {
      if (mailbox_.has_ended()) return mailbox_.end();
      if (Clock::now() >= deadline_) {
        mailbox_.fail({Code::kTimeout, "the ranks did not finish measuring their links in time"});
        return mailbox_.end();  // no request is left that uses our memory
      }
      mailbox_.poll() ? waiter.moved() : waiter.idle(Clock::now() + milliseconds(1));
    }
    return {};
  }

  Status wait_for(Request& request) {
    Status bad = wait([&] { return request.done(); });
    return bad.ok() ? request.status() : bad;
  }
  Status send(Node to, uint64_t number, ConstBytes bytes) {
    Request request;
    mailbox_.send(to, tag(number), bytes, &request);
    return wait_for(request);
  }
  Status recv(Node from, uint64_t number, Bytes bytes) {
    Request request;
    mailbox_.recv(from, tag(number), bytes, &request);
    return wait_for(request);
  }

  // The first leader plays ball with every other, one after another.
  Status measure_latency(double* alpha_s) {
    std::vector<double> ways;
    for (size_t host = 1; host < leaders_.size(); ++host) {
      ++step_;
      if (rank_ != leaders_[0] && rank_ != leaders_[host]) continue;
      std::array<std::byte, 8> ball{};
      const Node peer = rank_ == leaders_[0] ? leaders_[host] : leaders_[0];
      std::vector<double> trips;
      for (uint64_t i = 0; i < kPings; ++i) {
        const auto begun = Clock::now();
        for (const bool first : {true, false}) {
          const bool sends = (rank_ == leaders_[0]) == first;
          Status bad = sends ? send(peer, 2 * i + !first, ball) : recv(peer, 2 * i + !first, ball);
          if (!bad.ok()) return bad;
        }
        trips.push_back(seconds(Clock::now() - begun));
      }
      ways.push_back(median(trips) / 2);
    }
    if (rank_ == leaders_[0]) *alpha_s = median(ways);
    return {};
  }

  // All other leaders against one. What this rank received, in bytes per second; 0 on those that sent.
  Result<double> probe(Node one, bool outwards) {
    ++step_;
    std::vector<Node> others = leaders_;
    std::erase(others, one);
    const bool sends = (rank_ == one) == outwards;
    const std::vector<Node> peers = rank_ == one ? others : std::vector<Node>{one};
    if (!sends) return receive_stream(peers);
    Status bad = send_stream(peers);
    return bad.ok() ? Result<double>(0.0) : Result<double>(bad);
  }

  // Slot k carries the pieces k, k + slots_, ...; the first byte of the last says that it is.
  std::unique_ptr<Slot[]> slots_for(const std::vector<Node>& peers, size_t piece_bytes) {
    auto slots = std::make_unique<Slot[]>(peers.size() * slots_);
    for (size_t i = 0; i < peers.size() * slots_; ++i) {
      slots[i].peer = peers[i / slots_];
      slots[i].next = i % slots_;
      slots[i].piece.resize(piece_bytes);
    }
    return slots;
  }

  Status send_stream(const std::vector<Node>& peers) {
    const auto slots = slots_for(peers, 0);
    const std::span all(slots.get(), peers.size() * slots_);
    std::vector<std::byte> piece(kPieceBytes), last(kPieceBytes);
    last[0] = std::byte{1};
    const auto begun = Clock::now();
    size_t sent = 0;
    const size_t enough = kEnoughPieces + all.size();
    return wait([&] {
      const auto spent = Clock::now() - begun;
      const bool ends = (spent >= kLeastTime && sent >= enough) || spent >= kMostTime;
      bool over = true;
      for (Slot& slot : all) {
        if (!slot.request.done()) {
          over = false;
        } else if (!slot.over) {
          slot.over = ends;
          mailbox_.send(slot.peer, tag(slot.next), ends ? last : piece, &slot.request);
          slot.next += slots_;
          ++sent;
          over = false;
        }
      }
      return over;
    });
  }

  Result<double> receive_stream(const std::vector<Node>& peers) {
    const auto slots = slots_for(peers, kPieceBytes);
    const std::span all(slots.get(), peers.size() * slots_);
    for (Slot& slot : all) mailbox_.recv(slot.peer, tag(slot.next), slot.piece, &slot.request);
    Clock::time_point first{}, counted_from{}, counted_to{};
    double bytes = 0;
    bool any_over = false;
    Status bad = wait([&] {
      bool over = true;
      for (Slot& slot : all) {
        if (slot.over || !slot.request.done()) {
          over &= slot.over;
          continue;
        }
        const auto now = Clock::now();
        if (first == Clock::time_point{}) first = now;
        slot.over = slot.piece[0] == std::byte{1};
        any_over |= slot.over;
        if (now - first < kWarmUp) {
          counted_from = counted_to = now;
        } else if (!any_over) {
          bytes += kPieceBytes;
          counted_to = now;
        }
        if (slot.over) continue;
        slot.next += slots_;
        mailbox_.recv(slot.peer, tag(slot.next), slot.piece, &slot.request);
        over = false;
      }
      return over;
    });
    if (!bad.ok()) return bad;
    const double spent_s = seconds(counted_to - counted_from);
    return spent_s > 0 ? bytes / spent_s : 0.0;
  }

  // The first leader collects what all have seen, and tells all ranks what it makes of it.
  Result<Survey> agree(Link within_host, double alpha_s, std::vector<double> found) {
    step_ = kLastSteps;  // ranks that are no leaders come here at once
    std::string text;
    if (rank_ == 0) {
      std::vector<double> theirs(found.size());
      for (size_t host = 1; host < leaders_.size(); ++host) {
        if (Status bad = recv(leaders_[host], 0, std::as_writable_bytes(std::span(theirs))); !bad.ok()) return bad;
        std::transform(found.begin(), found.end(), theirs.begin(), found.begin(), std::plus<>());
      }
      text = to_text(draw(within_host, alpha_s, found));
    } else if (is_leader()) {
      if (Status bad = send(0, 0, std::as_bytes(std::span(found))); !bad.ok()) return bad;
    }
    auto told = tell(std::move(text));
    return told.ok() ? read(told.value(), true) : told.status();
  }

  static Result<Survey> read(const std::string& text, bool measured) {
    auto topology = topology_from_text(text);
    if (!topology.ok()) return topology.status();
    return Survey{std::move(topology).value(), measured};
  }

  // The first rank's text, on all ranks.
  Result<std::string> tell(std::string text) {
    ++step_;
    uint64_t size = text.size();
    for (Node node = 1; node < static_cast<Node>(hosts_.size()); ++node) {
      if (rank_ != 0 && rank_ != node) continue;
      const auto pass = [&](uint64_t number, Bytes bytes) {
        return rank_ == 0 ? send(node, number, bytes) : recv(0, number, bytes);
      };
      if (Status bad = pass(0, std::as_writable_bytes(std::span(&size, 1))); !bad.ok()) return bad;
      text.resize(size);
      if (size == 0) continue;
      if (Status bad = pass(1, std::as_writable_bytes(std::span(text))); !bad.ok()) return bad;
    }
    return text;
  }

  // A probe in which nothing could be counted leaves the card as fast as the fastest.
  Topology draw(Link within_host, double alpha_s, const std::vector<double>& found) const {
    // Other work on a host makes its card look slow; little makes one look fast.
    std::vector<double> best(2 * leaders_.size(), 0);
    for (size_t i = 0; i < found.size(); ++i) best[i % best.size()] = std::max(best[i % best.size()], found[i]);
    std::vector<double> rates = without_noise(best);
    const double fastest = std::max(*std::max_element(rates.begin(), rates.end()), 1.0);
    for (double& rate : rates) rate = rate > 0 ? rate : fastest;
    Topology topology(hosts_, within_host, {alpha_s, 1 / fastest});
    for (int host = 0; host < topology.host_count(); ++host) {
      const auto i = static_cast<size_t>(host) * 2;
      topology.set_card(host, {1 / rates[i], 1 / rates[i + 1]});
    }
    return topology;
  }

  Mailbox& mailbox_;
  DoorbellWord& bell_;
  const Node rank_;
  const std::vector<int>& hosts_;
  const Deadline deadline_;
  std::vector<Node> leaders_;  // per host, its first rank
  size_t slots_ = 1;
  uint64_t step_ = 0;  // the same on all ranks that take part in it
};

}  // namespace

std::vector<double> without_noise(const std::vector<double>& rates) {
  std::vector<size_t> order(rates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rates[a] > rates[b]; });
  std::vector<double> smooth = rates;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    double sum = 0;
    while (end < order.size() && rates[order[end]] >= rates[order[begin]] * (1 - kNoise))
      sum += rates[order[end++]];
    for (size_t i = begin; i < end; ++i) smooth[order[i]] = sum / static_cast<double>(end - begin);
    begin = std::max(end, begin + 1);
  }
  return smooth;
}

Result<Survey> survey(Mailbox& mailbox, DoorbellWord& bell, Node rank, const std::vector<int>& hosts,
                      Link within_host, const std::string& known, Deadline deadline) {
  return Surveyor(mailbox, bell, rank, hosts, deadline).run(within_host, known);
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "links/link_benchmark.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "links/control_channel.h"
#include "links/probe.h"

namespace braid {
namespace {

constexpr int kPings = 15;
// Messages of these sizes try how many bytes a NIC passes at once after a pause, kBurstPings of each. The first
// size takes no time on a wire.
constexpr std::array<size_t, 4> kBursts = {8, 1024, 4096, 16384};
constexpr int kBurstPings = 5;
constexpr milliseconds kRefill{4};
// A message counts only if the wire needs at least this long for it. Shorter times cannot be told from noise.
constexpr double kLeastWire_s = 3e-5;
constexpr size_t kPasses = 2;
constexpr double kNoise = 0.12;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class LinkBenchmark {
 public:
  LinkBenchmark(Mailbox& mailbox, DoorbellWord& bell, Node rank, const std::vector<int>& hosts, Deadline deadline,
                const GiveUp& give_up)
      : control_(mailbox, bell, "measuring their links", deadline, give_up), rank_(rank), hosts_(hosts) {
    for (Node node = 0; node < static_cast<Node>(hosts.size()); ++node) {
      if (hosts[static_cast<size_t>(node)] == static_cast<int>(leaders_.size())) leaders_.push_back(node);
    }
  }

  Result<LinkBenchmarkResult> run(Link within_host, const std::string& known) {
    auto told = control_.tell(rank_, nodes(), known);
    if (!told.ok()) return told.status();
    if (!told.value().empty()) return read(told.value(), false);
    std::vector<double> found;  // per pass and host: up, down; 0 if this rank did not measure it
    if (is_leader()) {
      if (Status bad = measure_latency(); !bad.ok()) return bad;
      for (size_t i = 0; i < kPasses * 2 * leaders_.size(); ++i) {
        auto rate = probe(leaders_[i / 2 % leaders_.size()], i % 2 == 0);
        if (!rate.ok()) return rate.status();
        found.push_back(rate.value());
      }
    }
    return agree(within_host, std::move(found));
  }

 private:
  int nodes() const { return static_cast<int>(hosts_.size()); }
  bool is_leader() const { return leaders_[static_cast<size_t>(hosts_[static_cast<size_t>(rank_)])] == rank_; }

  // The first leader exchanges messages with every other leader, one leader after another.
  Status measure_latency() {
    for (size_t host = 1; host < leaders_.size(); ++host) {
      const auto small = play(host, 8, kPings, {});
      if (!small.ok()) return small.status();
      ways_s_.push_back(small.value());
      for (size_t i = 0; i < kBursts.size(); ++i) {
        const auto large = play(host, kBursts[i], kBurstPings, kRefill);
        if (!large.ok()) return large.status();
        bursts_s_[i].push_back(large.value());
      }
    }
    return {};
  }

  // The median time of one way. During a pause NICs save up what they may pass at once.
  Result<double> play(size_t host, size_t bytes, int count, milliseconds pause) {
    control_.next_step();
    if (rank_ != leaders_[0] && rank_ != leaders_[host]) return 0.0;
    std::vector<std::byte> ball(bytes);
    const Node peer = rank_ == leaders_[0] ? leaders_[host] : leaders_[0];
    std::vector<double> trips;
    for (uint64_t i = 0; i < static_cast<uint64_t>(count); ++i) {
      if (rank_ == leaders_[0] && pause.count() > 0) std::this_thread::sleep_for(pause);
      const auto begun = Clock::now();
      for (const bool first : {true, false}) {
        const bool sends = (rank_ == leaders_[0]) == first;
        Status bad = sends ? control_.send(peer, 2 * i + !first, ball) : control_.recv(peer, 2 * i + !first, ball);
        if (!bad.ok()) return bad;
      }
      trips.push_back(seconds(Clock::now() - begun));
    }
    return median(trips) / 2;
  }

  // The largest burst: the largest message that every slow NIC passed in less than half of the time that its rate
  // calls for. A NIC is slow if its time can be told from noise. 0 if there is no such message. `rates`: up and
  // down, by host.
  double burst_bytes(const std::vector<double>& rates) const {
    double passed = 0;
    for (size_t i = 1; i < kBursts.size(); ++i) {
      const auto bytes = static_cast<double>(kBursts[i]);
      bool told = false;
      for (size_t host = 1; host < leaders_.size(); ++host) {
        const double there_s = bytes / std::min(rates[0], rates[2 * host + 1]);
        const double back_s = bytes / std::min(rates[2 * host], rates[1]);
        const double wire_s = (there_s + back_s) / 2;
        if (wire_s < kLeastWire_s) continue;
        told = true;
        if (bursts_s_[i][host - 1] - bursts_s_[0][host - 1] > wire_s / 2) return passed;
      }
      if (told) passed = bytes;
    }
    return passed;
  }

  Result<double> probe(Node one, bool outwards) {
    std::vector<Node> others = leaders_;
    std::erase(others, one);
    return probe_rate(control_, rank_, one, others, outwards);
  }

  // The first leader collects what all leaders have seen, and tells all ranks the result.
  Result<LinkBenchmarkResult> agree(Link within_host, std::vector<double> found) {
    control_.begin(ControlPurpose::kLinkBenchmarkResult);
    std::string text;
    if (rank_ == 0) {
      std::vector<double> theirs(found.size());
      for (size_t host = 1; host < leaders_.size(); ++host) {
        if (Status bad = control_.recv(leaders_[host], 0, std::as_writable_bytes(std::span(theirs))); !bad.ok())
          return bad;
        std::transform(found.begin(), found.end(), theirs.begin(), found.begin(), std::plus<>());
      }
      text = to_text(draw(within_host, found));
    } else if (is_leader()) {
      if (Status bad = control_.send(0, 0, std::as_bytes(std::span(found))); !bad.ok()) return bad;
    }
    auto told = control_.tell(rank_, nodes(), std::move(text));
    return told.ok() ? read(told.value(), true) : told.status();
  }

  Result<LinkBenchmarkResult> read(const std::string& text, bool measured) const {
    auto topology = topology_from_text(text);
    if (!topology.ok()) return topology.status();
    if (topology.value().nodes() != nodes()) {
      return Status(Code::kMismatch,
                    "rank 0 tells of " + std::to_string(topology.value().nodes()) + " ranks in a group of " +
                        std::to_string(nodes()),
                    0);
    }
    return LinkBenchmarkResult{std::move(topology).value(), measured};
  }

  // If a probe counted nothing, its NIC is taken to be as fast as the fastest.
  Topology draw(Link within_host, const std::vector<double>& found) const {
    // Other work on a host makes its NIC look slow. Hardly anything makes a NIC look fast.
    std::vector<double> best(2 * leaders_.size(), 0);
    for (size_t i = 0; i < found.size(); ++i) best[i % best.size()] = std::max(best[i % best.size()], found[i]);
    std::vector<double> rates = without_noise(best);
    const double fastest = std::max(*std::max_element(rates.begin(), rates.end()), 1.0);
    for (double& rate : rates) rate = rate > 0 ? rate : fastest;
    Topology topology(hosts_, within_host, {median(ways_s_), 1 / fastest});
    topology.set_burst_bytes(burst_bytes(rates));
    for (int host = 0; host < topology.host_count(); ++host) {
      const auto i = static_cast<size_t>(host) * 2;
      topology.set_nic(host, {1 / rates[i], 1 / rates[i + 1]});
    }
    return topology;
  }

  ControlChannel control_;
  const Node rank_;
  const std::vector<int>& hosts_;
  std::vector<Node> leaders_;  // per host, its first rank
  // On the first leader, by other host: the time of a message without a pause; and after a pause, for each size of
  // kBursts.
  std::vector<double> ways_s_;
  std::array<std::vector<double>, kBursts.size()> bursts_s_;
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

Result<LinkBenchmarkResult> benchmark_links(Mailbox& mailbox, DoorbellWord& bell, Node rank,
                                            const std::vector<int>& hosts, Link within_host,
                                            const std::string& known, Deadline deadline, const GiveUp& give_up) {
  return LinkBenchmark(mailbox, bell, rank, hosts, deadline, give_up).run(within_host, known);
}

}  // namespace braid

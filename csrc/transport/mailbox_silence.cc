// SPDX-License-Identifier: Apache-2.0
// Detects peers that are connected and silent: their process is stopped, or the network is cut. The system reports
// this only after a long time, so a mailbox looks from time to time at the peers that this rank needs.
//
// Silence is counted in looks, not by the clock: there are no looks while this process is itself stopped, or its
// machine suspended. A peer that computes or waits is not silent, because braid's own threads send the pulse and
// the answers.
#include <algorithm>
#include <utility>

#include "transport/mailbox.h"

namespace braid {
namespace {

// The looks end after more than this many looks in a row at which no peer was needed.
constexpr int kIdleLooks = 4;
// A silent peer is asked after this fraction (1/4) of the time after which it is lost.
constexpr int kAskAfter = 4;

std::string seconds_text(milliseconds time) {
  const std::string whole = std::to_string(time.count() / 1000);
  const auto tenth = time.count() % 1000 / 100;
  return (tenth == 0 ? whole : whole + "." + std::to_string(tenth)) + " s";
}

}  // namespace

void Mailbox::lose_silent(milliseconds after, std::function<void()> start) {
  const std::lock_guard lock(mutex_);
  silence_ = after;
  start_looking_ = std::move(start);
}

void Mailbox::set_name(Node node, std::string name) {
  const std::lock_guard lock(mutex_);
  peer(node).name = std::move(name);
}

void Mailbox::hide_ranks() {
  const std::lock_guard lock(mutex_);
  hides_ranks_ = true;
}

void Mailbox::need(std::vector<Node> elsewhere) {
  const std::lock_guard lock(mutex_);
  needed_elsewhere_ = std::move(elsewhere);
  if (!needed_elsewhere_.empty()) start_looking();
}

void Mailbox::need_all(bool yes) {
  const std::lock_guard lock(mutex_);
  needs_all_ = yes;
  if (yes) start_looking();
}

void Mailbox::start_looking() {
  if (is_looking_ || silence_.count() <= 0 || !failure_.ok() || closed_) return;
  is_looking_ = true;
  idle_looks_ = 0;
  start_looking_();
}

std::vector<char> Mailbox::needed_peers() const {
  std::vector<char> needed(peers_.size(), needs_all_ ? 1 : 0);
  for (const Node node : needed_elsewhere_) needed[static_cast<size_t>(node)] = 1;
  for (const auto& [request, writing] : writing_) needed[static_cast<size_t>(writing.to)] = 1;
  for (size_t i = 0; i < peers_.size(); ++i) {
    const Peer& p = peers_[i];
    if (!p.receives.empty() || !p.sends.empty()) needed[i] = 1;
    for (const auto& [tag, early] : p.early) {
      if (early.waiting.request != nullptr) needed[i] = 1;
    }
  }
  return needed;
}

bool Mailbox::look_for_silence(milliseconds step) {
  const std::lock_guard lock(mutex_);
  is_looking_ = false;
  if (!failure_.ok() || closed_) return false;
  const std::vector<char> needed = needed_peers();
  ++idle_looks_;
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& p = peers_[i];
    if (!p.channel) continue;
    if (needed[i] == 0 || !p.lost.ok() || p.left || p.channel->heard()) {
      if (needed[i] != 0) idle_looks_ = 0;
      p.silent = {};
      p.asked = false;
      continue;
    }
    idle_looks_ = 0;
    p.silent += step;
    const auto node = static_cast<Node>(i);
    if (p.silent >= silence_) {
      const bool has_nic = p.channel->traits().has_nic;
      const Status why(Code::kPeerLost,
                       (p.name.empty() ? rank_text(node) : p.name) + " has not answered" +
                           (hides_ranks_ ? "" : " " + rank_text(rank_)) + " for " + seconds_text(silence_) +
                           (has_nic ? "; its process is stopped or hangs in the kernel, or the network is cut"
                                    : "; its process is stopped or hangs in the kernel") +
                           " (BRAID_PEER_TIMEOUT)",
                       node);
      fail_locked(why);  // tells the silent peer as well: if it goes on, it must not wait for us
      p.lost = why;
      has_lost_.store(true, std::memory_order_release);
      return false;
    }
    if (!p.asked && p.silent >= silence_ / kAskAfter && p.channel->traits().has_nic) {
      p.asked = true;
      post_control(node, FrameKind::kAsk, {}, 0);
    }
  }
  is_looking_ = idle_looks_ <= kIdleLooks;
  return is_looking_;
}

}  // namespace braid

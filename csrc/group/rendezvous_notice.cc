// SPDX-License-Identifier: Apache-2.0
#include "group/rendezvous_notice.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "group/stall_notice.h"
#include "rendezvous/endpoint_exchange.h"

namespace braid {
namespace {

constexpr milliseconds kLookAtKey{1};

}  // namespace

RendezvousNotice::RendezvousNotice(Store& store, Node rank, int ranks, std::string name, milliseconds first)
    : store_(store), rank_(rank), ranks_(ranks), name_(std::move(name)), notice_after_(first) {}

RendezvousNotice::~RendezvousNotice() {
  if (notices_ == 0) return;
  log(LogLevel::kWarning, "rank " + std::to_string(rank_) + ": the rendezvous of group \"" + name_ +
                              "\" has ended after " + seconds_text(Clock::now() - begun_));
}

Result<std::string> RendezvousNotice::get(const std::string& key, milliseconds timeout) {
  if (notice_after_.count() == 0) return store_.get(key, timeout);
  const Deadline deadline = deadline_after(timeout);
  while (true) {
    const auto left = std::min(deadline, begun_ + notice_after_) - Clock::now();
    auto value = store_.get(key, std::max(std::chrono::ceil<milliseconds>(left), kLookAtKey));
    if (value.ok() || value.status().code() != Code::kTimeout) return value;
    const auto now = Clock::now();
    if (now >= deadline) return value;
    if (now < begun_ + notice_after_) continue;
    ++notices_;
    while (begun_ + notice_after_ <= now) notice_after_ *= 2;
    tell(key);
  }
}

void RendezvousNotice::tell(const std::string& key) {
  std::vector<Node> missing;
  for (Node node = 0; node < ranks_; ++node) {
    if (!has_come(node)) missing.push_back(node);
  }
  std::string text = "rank " + std::to_string(rank_) + " has waited " + seconds_text(Clock::now() - begun_) +
                     " for group \"" + name_ + "\" to form: ";
  if (missing.empty()) {
    text += "all " + std::to_string(ranks_) + " ranks have come, but \"" + key + "\" is not in the store yet";
  } else {
    text += "waiting for " + ranks_text(missing) + " of " + std::to_string(ranks_) + "; " +
            std::to_string(static_cast<size_t>(ranks_) - missing.size()) +
            " have come; are they started, with this number of ranks, and with braid as backend?";
    if (missing.size() > 1 && missing.front() == 0)
      text += " Rank 0 may be waiting in torch's store for the others.";
  }
  log(LogLevel::kWarning, text);
}

// An endpoint that an earlier group of this name left in the store counts, too.
bool RendezvousNotice::has_come(Node node) {
  return node == rank_ || await(store_, "braid/" + name_ + "/", "card", node, Clock::now() + kLookAtKey).ok();
}

}  // namespace braid

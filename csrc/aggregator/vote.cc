// SPDX-License-Identifier: Apache-2.0
#include "aggregator/vote.h"

#include <algorithm>
#include <span>

namespace braid {
namespace {

// Distinct from the tags of collectives, whose streams count from 1, and of the control channel, whose steps are
// smaller (control_channel.h).
Tag tag_of(uint64_t sequence, uint64_t number) {
  return {0, (uint64_t{1} << 31 | (sequence & 0x3fffffff)) << 32 | number};
}

Bytes bytes_at(uint64_t& word) { return std::as_writable_bytes(std::span(&word, 1)); }

}  // namespace

Vote::Vote(Mailbox& mailbox, Node rank, int ranks, uint64_t sequence, bool yes)
    : mailbox_(mailbox),
      rank_(rank),
      ballots_(tag_of(sequence, 0)),
      result_(tag_of(sequence, 1)),
      ballot_(yes),
      outcome_(yes) {
  if (rank_ == 0) {
    open_ = static_cast<size_t>(ranks) - 1;
    heard_.resize(open_);
    requests_ = std::make_unique<Request[]>(open_);
    for (size_t i = 0; i < open_; ++i) {
      mailbox_.recv(static_cast<Node>(i + 1), ballots_, bytes_at(heard_[i]), &requests_[i]);
    }
  } else {
    open_ = 2;
    requests_ = std::make_unique<Request[]>(open_);
    mailbox_.recv(0, result_, bytes_at(outcome_), &requests_[1]);
    mailbox_.send(0, ballots_, bytes_at(ballot_), &requests_[0]);
  }
}

bool Vote::advance() {
  const std::span requests(requests_.get(), open_);
  if (!std::all_of(requests.begin(), requests.end(), [](const Request& request) { return request.done(); })) {
    return false;
  }
  for (const Request& request : requests) {
    if (!request.status().ok()) {
      status_ = request.status();
      return true;
    }
  }
  return rank_ != 0 || collect();
}

bool Vote::collect() {
  if (telling_) return true;
  telling_ = true;
  outcome_ = outcome_ != 0 && std::all_of(heard_.begin(), heard_.end(), [](uint64_t yes) { return yes != 0; });
  for (size_t i = 0; i < open_; ++i) {
    mailbox_.send(static_cast<Node>(i + 1), result_, bytes_at(outcome_), &requests_[i]);
  }
  return advance();
}

}  // namespace braid

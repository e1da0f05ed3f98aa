// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/wire.h"

namespace braid {

Result<std::string> TcpWire::offer() {
  auto listener = listening_();
  if (!listener.ok()) return listener.status();
  return listener.value()->address();
}

Status TcpWire::join(const std::string& group, const std::string& secret, const std::vector<WirePeer>&) {
  auto listener = listening_();
  if (!listener.ok()) return listener.status();
  leave();
  auto joined = listener.value()->join(group, secret, rank_, ranks_, sink_);
  if (!joined.ok()) return joined.status();
  group_ = std::move(joined).value();
  place_ = listener.value()->place();
  return {};
}

Result<std::unique_ptr<Channel>> TcpWire::connect(Node peer, const std::string& offer, char) {
  return group_->channel(peer, offer);
}

std::string TcpWire::describe(Node, const std::string& offer) const { return "tcp " + offer + " from " + place_; }

// Without the port, which changes every time.
std::string TcpWire::nic_of(const std::string& offer) const { return offer.substr(0, offer.rfind(':')); }

NicRates TcpWire::take_rates() { return group_ ? group_->take_rates() : NicRates{}; }

void TcpWire::leave() {
  if (group_) group_->leave();
}

void TcpWire::wait_for_last_words(Deadline deadline) {
  if (group_) group_->wait_for_last_words(deadline);
}

}  // namespace braid

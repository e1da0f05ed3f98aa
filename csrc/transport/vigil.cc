// SPDX-License-Identifier: Apache-2.0
#include "transport/vigil.h"

#include <algorithm>

namespace braid {
namespace {

constexpr milliseconds kLongestPeriod = kPulseTime;
constexpr int kLooksPerTimeout = 8;

}  // namespace

std::shared_ptr<Vigil> Vigil::keep(Reactor& reactor, Mailbox& mailbox, milliseconds peer_timeout) {
  if (peer_timeout.count() <= 0) return nullptr;
  const milliseconds period = std::clamp(peer_timeout / kLooksPerTimeout, milliseconds(1), kLongestPeriod);
  auto vigil = std::make_shared<Vigil>(reactor, mailbox, period);
  mailbox.lose_silent(peer_timeout, [vigil] { vigil->look_later(); });
  return vigil;
}

void Vigil::end() {
  ended_.store(true, std::memory_order_release);
  reactor_.quiesce();
}

void Vigil::look_later() {
  looked_at_ = Clock::now();
  reactor_.at(looked_at_ + period_, [self = shared_from_this()] { self->look(); });
}

void Vigil::look() {
  if (ended_.load(std::memory_order_acquire)) return;
  // A late look counts as one period: this process was stopped or hardly ran, so it could not hear.
  const auto since = std::chrono::duration_cast<milliseconds>(Clock::now() - looked_at_);
  if (mailbox_.look_for_silence(since < 2 * period_ ? since : period_)) look_later();
}

}  // namespace braid

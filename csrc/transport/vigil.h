// SPDX-License-Identifier: Apache-2.0
// Makes a mailbox look for silent peers, on the network thread. It looks from time to time while a peer is needed,
// and not at all while none is.
#pragma once

#include <atomic>
#include <memory>

#include "base/clock.h"
#include "transport/death_watch.h"
#include "transport/mailbox.h"
#include "transport/reactor.h"

namespace braid {

class Vigil : public std::enable_shared_from_this<Vigil> {
 public:
  // A peer that is silent for `peer_timeout` is lost. `reactor` outlives the vigil.
  static std::shared_ptr<Vigil> keep(Reactor& reactor, Mailbox& mailbox, milliseconds peer_timeout);
  Vigil(Reactor& reactor, Mailbox& mailbox, milliseconds period)
      : reactor_(reactor), mailbox_(mailbox), period_(period) {}

  // When this returns, the mailbox is not touched any more. REQUIRES: its mutex is not held.
  void end();

 private:
  void look_later();
  void look();

  Reactor& reactor_;
  Mailbox& mailbox_;
  const milliseconds period_;
  std::atomic<bool> ended_{false};
  Clock::time_point looked_at_;
};

}  // namespace braid

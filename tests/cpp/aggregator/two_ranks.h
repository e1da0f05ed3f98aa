// SPDX-License-Identifier: Apache-2.0
// Two ranks on two hosts, each with an engine and a mailbox and no group: for tests of a group's parts.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "communicator/member.h"
#include "communicator/ranks.h"
#include "communicator/statistics.h"
#include "rendezvous/rendezvous.h"
#include "transport/loopback/loopback.h"

namespace braid::testing {

class TwoRanks {
 public:
  struct Rank {
    Rank(Node number, const Options& options)
        : member{std::static_pointer_cast<EngineImpl>(Engine::create(options).value()),
                 number,
                 2,
                 2,
                 "test",
                 options},
          mailbox(number, 2, member.engine->bell()),
          timeout(options.timeout) {
      wires.hosts = {0, 1};
    }
    ~Rank() { mailbox.close(); }

    const Member member;
    Wires wires;
    Mailbox mailbox;
    Timeout timeout;
    Statistics statistics;
  };

  explicit TwoRanks(const Options& options) {
    for (Node rank = 0; rank < 2; ++rank) ranks_[rank].emplace(rank, options);
    for (Node rank = 0; rank < 2; ++rank) {
      Rank& own = *ranks_[rank];
      own.mailbox.attach(1 - rank, hub_.channel(rank, 1 - rank, own.mailbox, own.member.engine->bell()));
    }
  }

  Rank& operator[](Node rank) { return *ranks_[rank]; }

  // Runs body on both ranks at once.
  static void on_both(const std::function<void(Node)>& body) {
    std::thread other([&] { body(1); });
    body(0);
    other.join();
  }

 private:
  LoopbackHub hub_{2, {}};
  std::optional<Rank> ranks_[2];
};

}  // namespace braid::testing

// SPDX-License-Identifier: Apache-2.0
// One rank of a group in shared memory, with everything that belongs to it.
#pragma once

#include <memory>
#include <string>

#include "support/slowness.h"
#include "transport/mailbox.h"
#include "transport/shm/shm.h"

namespace braid::testing {

struct ShmSide {
  ShmSide(Node own_rank, int ranks, const ShmOptions& options = {})
      : rank(own_rank),
        bell(ShmDoorbell::create().value()),
        watch(make_death_watch()),
        group(ShmGroup::create(rank, ranks, *bell, *watch, options).value()),
        mailbox(std::make_unique<Mailbox>(rank, ranks, bell->word())) {
    mailbox->publish_at(group->stream_word());
  }
  ShmSide(ShmSide&&) = default;

  void attach(Node peer, bool peer_can_read_me) {
    mailbox->attach(peer, group->channel(peer, *mailbox, peer_can_read_me));
  }

  // Polls until the request is done or 20 s have passed; its outcome.
  Status wait(Request& request) {
    const Deadline deadline = deadline_after(limit(milliseconds(20'000)));
    Waiter waiter(bell->word());
    while (!request.done()) {
      if (mailbox->poll() || request.done()) {
        waiter.moved();
        continue;
      }
      if (Clock::now() > deadline) return {Code::kTimeout, "the test waited too long"};
      waiter.idle(deadline);
    }
    return request.status();
  }

  Status send(Node to, Tag tag, ConstBytes bytes) {
    Request request;
    mailbox->send(to, tag, bytes, &request);
    return wait(request);
  }
  Status recv(Node from, Tag tag, Bytes bytes) {
    Request request;
    mailbox->recv(from, tag, bytes, &request);
    return wait(request);
  }

  Node rank;
  std::unique_ptr<ShmDoorbell> bell;
  std::unique_ptr<DeathWatch> watch;
  std::unique_ptr<ShmGroup> group;
  std::unique_ptr<Mailbox> mailbox;
};

}  // namespace braid::testing

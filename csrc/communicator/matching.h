// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "communicator/work.h"
#include "transport/mailbox.h"

namespace braid {

// Which message a point-to-point receive gets. Messages of one pair of ranks and one tag are numbered by both sides
// alike; receives of a tag take them in the order posted. A receive from any rank takes the first message that
// arrives, and until it has one, later receives of its tag wait: the message might be theirs otherwise.
//
// Thread safety: none; calls come under the group's lock. Requests and works outlive their place here.
class Matching {
 public:
  Matching(Mailbox& mailbox, int ranks) : mailbox_(mailbox), ranks_(ranks) {}

  struct Receive {
    Node from = kAnyNode;
    uint32_t tag = 0;
    Bytes bytes;
    Request* request = nullptr;
    Work* work = nullptr;  // learns the source
  };

  void send(Node to, uint32_t tag, ConstBytes bytes, Request* request);
  // True when the receive has got its message's number, so that the mailbox finishes its request.
  bool recv(const Receive& receive);
  // Matches what has arrived since. False while this receive still waits; then `lost` says if it waits in vain.
  bool match(uint32_t tag, const Request* request, Status* lost);
  // Drops a receive that waits.
  void forget(uint32_t tag, const Request* request);

 private:
  void post(const Receive& receive, Node from);
  // The peer whose message of this tag has arrived, or kAnyNode.
  Node source_of(uint32_t tag, Status* lost);
  void match_waiting(uint32_t tag, Status* lost);

  Mailbox& mailbox_;
  const int ranks_;
  Node next_source_ = 0;  // so that no peer is always preferred
  std::map<std::pair<Node, uint32_t>, uint64_t> sent_;
  std::map<std::pair<Node, uint32_t>, uint64_t> received_;
  std::map<uint32_t, std::deque<Receive>> waiting_;  // per tag, from the first one from any rank on
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "communicator/work.h"
#include "transport/mailbox.h"

namespace braid {

// Decides which message a point-to-point receive gets. Both sides number the messages of one pair of ranks and one
// tag in the same way. Receives of a tag take them in the order posted. A receive from any rank takes the first
// message that arrives. Until it has one, later receives of its tag wait, so that they do not take its message.
//
// Thread safety: none; the caller holds the lock of the messages. Requests and works must live until they are matched or
// forgotten.
class Matching {
 public:
  Matching(Mailbox& mailbox, int ranks) : mailbox_(mailbox), ranks_(ranks) {}

  struct Receive {
    Node from = kAnyNode;
    uint32_t tag = 0;
    Bytes bytes;
    Request* request = nullptr;
    Work* work = nullptr;  // gets the source once it is known
  };

  void send(Node to, uint32_t tag, ConstBytes bytes, Request* request);
  // True if the receive is matched: it has its message's number, and the mailbox will finish its request.
  bool recv(const Receive& receive);
  // Matches messages that have arrived. False while this receive still waits. If it waits in vain, `lost` says
  // why.
  bool match(uint32_t tag, const Request* request, Status* lost);
  // Drops a waiting receive.
  void forget(uint32_t tag, const Request* request);

 private:
  void post(const Receive& receive, Node from);
  // A peer whose next message of this tag has arrived, or kAnyNode. `lost` says why none can come any more.
  Node source_of(uint32_t tag, Status* lost);
  void match_waiting(uint32_t tag, Status* lost);

  Mailbox& mailbox_;
  const int ranks_;
  Node next_source_ = 0;  // where the next search begins, so that no peer is always preferred
  std::map<std::pair<Node, uint32_t>, uint64_t> sent_;
  std::map<std::pair<Node, uint32_t>, uint64_t> received_;
  std::map<uint32_t, std::deque<Receive>> waiting_;  // by tag: a receive from any rank, and all receives after it
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// A group's point-to-point messages. They are independent of its collectives.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "base/interruptible_wait.h"
#include "communicator/member.h"
#include "communicator/statistics.h"
#include "communicator/work.h"
#include "group/matching.h"
#include "group/stall.h"
#include "transport/mailbox.h"

namespace braid {

// Describes a point-to-point message.
struct PointToPoint {
  bool sends = false;
  Node peer = kAnyNode;
  uint32_t tag = 0;
  size_t bytes = 0;
};

// Thread safe. mutex_ guards the counters and the matching; under it only the mailbox's lock is taken.
class Messages {
 public:
  // All arguments must outlive it.
  Messages(const Member& member, const Timeout& timeout, Mailbox& mailbox, Statistics& statistics, Stalls& stalls)
      : member_(member),
        timeout_(timeout),
        mailbox_(mailbox),
        statistics_(statistics),
        stalls_(stalls),
        matching_(mailbox, member.nodes) {}

  // As Communicator's. `owner` is kept until the message has ended: it must keep this object alive.
  Result<std::shared_ptr<Work>> send(std::shared_ptr<void> owner, Node to, uint32_t tag, ConstBytes bytes,
                                     milliseconds timeout);
  Result<std::shared_ptr<Work>> recv(std::shared_ptr<void> owner, Node from, uint32_t tag, Bytes bytes,
                                     milliseconds timeout);
  // From now on no message is started.
  void close();
  // Waits until all started messages have ended.
  void wait_until_ended(Deadline deadline, const GiveUp& give_up);

 private:
  friend class MessageTask;

  // hand_over() gives the message to the mailbox. It returns false if a receive is not matched yet.
  Result<std::shared_ptr<Work>> start(std::shared_ptr<void> owner, const PointToPoint& message,
                                      milliseconds timeout, const std::function<bool(Request*, Work*)>& hand_over);
  // For MessageTask:
  // True if the receive is matched with a message. If it never will be, `lost` says why.
  bool match(uint32_t tag, const Request* request, Status* lost);
  // Drops a receive that may still wait to be matched.
  void forget(uint32_t tag, const Request* request);
  // A message has ended. Call it after the callbacks of its work.
  void ended();

  const Member& member_;
  const Timeout& timeout_;
  Mailbox& mailbox_;
  Statistics& statistics_;
  Stalls& stalls_;

  std::mutex mutex_;
  Matching matching_;
  std::map<std::tuple<bool, Node, uint32_t>, uint64_t> counts_;  // by (sends, peer, tag), for their names
  size_t open_ = 0;
  bool is_closed_ = false;
  std::condition_variable ended_;  // notified when a message ends
};

}  // namespace braid

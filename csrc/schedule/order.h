// SPDX-License-Identifier: Apache-2.0
// The messages of a schedule, paired up, and one order in which everything can happen. The verifier, the cost
// model and simulations walk this order, so the rules of rounds and messages are written down once.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "schedule/schedule.h"

namespace braid {

// One end of a message: a send, a recv, or a remote source of a reduce.
struct Endpoint {
  Node node = 0;
  int32_t round = 0;
  int32_t step = 0;
  int32_t source = -1;  // position among the sources of a reduce; -1 for send and recv
};

struct Message {
  Endpoint from;
  Endpoint to;
  int32_t number = 0;  // among the messages from this sender to this receiver
};

// Either a message moves, or (message < 0) all messages of a round have moved and its local steps run.
struct Event {
  int32_t message = -1;
  Node node = 0;
  int32_t round = 0;
};

struct Order {
  std::vector<Message> messages;  // sorted by sender, receiver, number
  std::vector<Event> events;
};

// In this order a message moves only while its sender and its receiver are both in the message's rounds: no
// buffering is assumed. A schedule that has such an order cannot deadlock on any transport.
// kInvalidArgument, naming the step, if messages do not pair up, or if nodes wait for each other in a circle.
Result<Order> order_of(const Schedule& schedule);

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "verify/verify.h"

#include <string>
#include <utility>

#include "schedule/order.h"
#include "schedule/text.h"
#include "verify/memory.h"
#include "verify/race.h"
#include "verify/structure.h"
#include "verify/symbolic.h"

namespace braid {
namespace {

using Facts = std::vector<std::vector<std::vector<VerifiedSchedule::StepFacts>>>;

// FNV-1a, then a final mix so that short texts fill all 64 bits.
uint64_t digest_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdu;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53u;
  return hash ^ (hash >> 33);
}

Facts number_messages(const Schedule& schedule, const Order& order) {
  Facts facts(schedule.programs.size());
  for (size_t node = 0; node < facts.size(); ++node) {
    for (const Round& round : schedule.programs[node]) {
      auto& steps = facts[node].emplace_back(round.size());
      for (size_t index = 0; index < round.size(); ++index) {
        if (round[index].op == Op::kReduce) steps[index].message.assign(round[index].sources.size(), -1);
      }
    }
  }
  for (const Message& message : order.messages) {
    facts[message.from.node][message.from.round][message.from.step].message = {message.number};
    auto& landing = facts[message.to.node][message.to.round][message.to.step].message;
    if (message.to.source < 0) {
      landing = {message.number};
    } else {
      landing[message.to.source] = message.number;
    }
  }
  return facts;
}

Status prove(const Schedule& schedule, const Order& order, bool in_place, Facts* facts) {
  Memory memory(schedule, in_place);
  Status status = check_races(schedule, memory);
  if (status.ok()) {
    status = run_symbolically(schedule, order, memory, [&](Node node, size_t round, size_t step) {
      (*facts)[node][round][step].completes = true;
    });
  }
  if (status.ok() || !in_place) return status;
  return {status.code(), status.message() + " (with input and output in the same memory)"};
}

}  // namespace

Result<VerifiedSchedule> verify(Schedule schedule) {
  Status structure = check_structure(schedule);
  if (!structure.ok()) return structure;
  Result<Order> order = order_of(schedule);
  if (!order.ok()) return order.status();

  VerifiedSchedule verified;
  verified.facts_ = number_messages(schedule, order.value());
  for (bool in_place : {false, true}) {
    Status status = prove(schedule, order.value(), in_place, &verified.facts_);
    if (!status.ok()) return status;
  }
  verified.digest_ = digest_of(to_text(schedule));
  verified.schedule_ = std::make_shared<const Schedule>(std::move(schedule));
  return verified;
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// Where aggregators say that they are free, and a group's first rank asks them to join it: a few keys in a store that
// both reach, and that serves one job.
//
//   braid/servers/slot/<k>         the ticket of aggregator k while it is free, "" when it has left; k = 0, 1, ...
//   braid/servers/ask/<ticket>     set by the first rank: a word of its own
//   braid/servers/yes/<ticket>     set by the aggregator in answer, the same word: it lives, and is theirs
//   braid/servers/place/<ticket>   set by the first rank: which group, and which of its aggregators
//
// A ticket is random, and used up by being asked: an aggregator that is free again has a new one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "communicator/options.h"
#include "communicator/store.h"

namespace braid {

// An aggregator's place in a group.
struct Appointment {
  std::string group;
  int ranks = 1;        // that contribute
  int aggregators = 1;  // after them
  int index = 0;        // among the aggregators
  // What must be equal on all members, besides what is the same in all processes.
  int64_t chunk_bytes = 0;
  int window = 4;
  std::string links;
};

// The first rank's side.
class Registry {
 public:
  explicit Registry(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  // Tickets that were not there when this was last called; none where the store fails.
  std::vector<std::string> newcomers();
  // Those who answer before the deadline.
  std::vector<std::string> ask(const std::vector<std::string>& tickets, Deadline deadline);
  // In this order; `appointment` is all but the index.
  Status appoint(const std::vector<std::string>& tickets, Appointment appointment);

 private:
  const std::shared_ptr<Store> store_;
  std::set<std::string> seen_;
};

// An aggregator's side.
class Candidacy {
 public:
  explicit Candidacy(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  // Says that this aggregator is free, under a new ticket; takes a slot if it has none. kUnsupported when
  // all are taken.
  Status offer();
  // The appointment; none when nobody has asked before the deadline, or another was preferred: offer() again.
  enum class Answer { kNotAsked, kPassedOver, kAppointed };
  Result<Answer> await(Deadline deadline, Appointment* appointment);
  void withdraw();

 private:
  Status take_slot(const std::string& ticket);
  // One that took it at the same time, and was slow, may have it now: then another.
  Status keep_slot();

  const std::shared_ptr<Store> store_;
  int slot_ = -1;
  std::string ticket_;
};

}  // namespace braid

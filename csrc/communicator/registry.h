// SPDX-License-Identifier: Apache-2.0
// Where aggregators say that they are free, and a group's first rank asks them to join it: a few keys in a store that
// both reach, and that serves one job.
//
//   braid/servers/slot/<k>         the ticket of aggregator k while it is free, "" when it has left; k = 0, 1, ...
//   braid/servers/ask/<ticket>     set by the first rank: a word of its own
//   braid/servers/yes/<ticket>     set by the aggregator in answer, to that word: it lives, and nobody else has asked it
//   braid/servers/place/<ticket>   set by the first rank: which group, and which of its aggregators
//
// A ticket is random, and used up by being asked: an aggregator that is free again has a new one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/store.h"
#include "options/options.h"

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

  bool operator==(const Appointment&) const = default;
};
std::string to_text(const Appointment& appointment);
// Nothing where the text makes no sense.
std::optional<Appointment> appointment_from_text(std::string_view text);

// The first rank's side.
class Registry {
 public:
  explicit Registry(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  // Tickets that were not there when this was last called. What the store failed with.
  Result<std::vector<std::string>> newcomers();
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

  // Says that this aggregator is free, under a new ticket; takes a slot if it has none. kUnsupported when all are taken.
  Status offer();
  // kNotYet: by the deadline nobody has said more; await() again. kPassedOver: offer() again, and so after kUnreadable,
  // when a group of another version has asked.
  enum class Answer { kNotYet, kPassedOver, kUnreadable, kAppointed };
  Result<Answer> await(Deadline deadline, Appointment* appointment);
  void withdraw();

 private:
  Status take_slot(const std::string& ticket);
  // One that took it at the same time, and was slow, may have it now: then another.
  Status keep_slot();

  const std::shared_ptr<Store> store_;
  int slot_ = -1;
  std::string ticket_;
  bool answered_ = false;  // who has asked; then the place is due
  Deadline place_due_{};
};

}  // namespace braid

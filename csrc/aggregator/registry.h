// SPDX-License-Identifier: Apache-2.0
// Registry of aggregators. Free aggregators register, and the first rank of a group asks them to join. They use
// these keys of a store that serves one job:
//
//   braid/servers/slot/<k>         the ticket of a free aggregator, or "" if the slot is free; k = 0, 1, ...
//   braid/servers/ask/<ticket>     set by the first rank: a random word
//   braid/servers/yes/<ticket>     set by the aggregator: the same word. So it lives and answers this rank
//   braid/servers/place/<ticket>   set by the first rank: which group, and which of its aggregators
//
// A ticket is random and used once: an aggregator that is free again has a new ticket.
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
  int ranks = 1;        // ranks that contribute
  int aggregators = 1;  // number of aggregators; they come after the ranks
  int index = 0;        // number of this aggregator: 0, 1, ...
  // The settings that must be equal on all members and that an aggregator takes from the ranks.
  int64_t chunk_bytes = 0;
  int window = 4;
  std::string links;

  bool operator==(const Appointment&) const = default;
};
std::string to_text(const Appointment& appointment);
// Nothing if the text is not valid.
std::optional<Appointment> appointment_from_text(std::string_view text);

// The first rank's side.
class Registry {
 public:
  explicit Registry(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  // The tickets that are new since the last call, or the error of the store.
  Result<std::vector<std::string>> newcomers();
  // Asks aggregators to join. Returns the tickets of those that answer before the deadline.
  std::vector<std::string> ask(const std::vector<std::string>& tickets, Deadline deadline);
  // Gives the aggregators their places, in this order. Sets `aggregators`; `appointment.index` is the first index.
  Status appoint(const std::vector<std::string>& tickets, Appointment appointment);

 private:
  const std::shared_ptr<Store> store_;
  std::set<std::string> seen_;
};

// An aggregator's side.
class Candidacy {
 public:
  explicit Candidacy(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  // Registers this aggregator as free, under a new ticket. Takes a slot if it has none. kUnsupported if all slots
  // are taken.
  Status offer();
  // kNotYet: nothing came before the deadline; call await() again. kPassedOver: the group took others; call
  // offer() again. kUnreadable: a group of another version has asked; call offer() again.
  enum class Answer { kNotYet, kPassedOver, kUnreadable, kAppointed };
  Result<Answer> await(Deadline deadline, Appointment* appointment);
  void withdraw();

 private:
  Status take_slot(const std::string& ticket);
  // Takes another slot if a slow aggregator has overwritten this one: both took it at the same time.
  Status keep_slot();

  const std::shared_ptr<Store> store_;
  int slot_ = -1;
  std::string ticket_;
  bool answered_ = false;  // has said yes; now waits for its place
  Deadline place_due_{};
};

}  // namespace braid

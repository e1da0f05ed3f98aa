// SPDX-License-Identifier: Apache-2.0
#include "aggregator/registry.h"

#include <algorithm>
#include <charconv>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "base/random.h"
#include "base/sha256.h"
#include "schedule/collective.h"

namespace braid {
namespace {

constexpr size_t kTicketBytes = 12;
// How long to wait for a key that may not exist yet.
constexpr milliseconds kGlance{1};
// How long two aggregators that take the same slot at the same time need to see the conflict.
constexpr milliseconds kSettleTime{50};
// How long an aggregator waits for its place after its answer: the first rank waits for other answers, too.
constexpr milliseconds kPlaceTime{120'000};

std::string key(const char* what, const std::string& of) {
  return "braid/servers/" + std::string(what) + "/" + of;
}
std::string slot_key(int slot) { return key("slot", std::to_string(slot)); }

milliseconds left(Deadline deadline) {
  return std::max(std::chrono::duration_cast<milliseconds>(deadline - Clock::now()), milliseconds(1));
}

}  // namespace

// One field per line; the group's name comes last. It must not contain a newline.
std::string to_text(const Appointment& a) {
  return std::to_string(a.ranks) + "\n" + std::to_string(a.aggregators) + "\n" + std::to_string(a.index) + "\n" +
         std::to_string(a.chunk_bytes) + "\n" + std::to_string(a.window) + "\n" + a.links + "\n" + a.group;
}

std::optional<Appointment> appointment_from_text(std::string_view text) {
  const auto line = [&] {
    const std::string_view found = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), found.size() + 1));
    return found;
  };
  bool bad = false;
  const auto number = [&](auto& value) {
    const std::string_view digits = line();
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    bad |= error != std::errc() || end != digits.data() + digits.size() || digits.empty();
  };
  if (text.size() > kMostStoreValueBytes) return std::nullopt;
  Appointment a;
  number(a.ranks);
  number(a.aggregators);
  number(a.index);
  number(a.chunk_bytes);
  number(a.window);
  a.links = line();
  a.group = line();
  if (bad || a.ranks < 1 || a.ranks > kMaxRanks || a.aggregators < 1 || a.aggregators > kMostServers) {
    return std::nullopt;
  }
  if (a.index < 0 || a.index >= a.aggregators || a.group.empty()) return std::nullopt;
  return a;
}

Result<std::vector<std::string>> Registry::newcomers() {
  std::vector<std::string> tickets;
  for (int slot = 0; slot < kMostServers; ++slot) {
    const auto ticket = store_->get(slot_key(slot), kGlance);
    if (!ticket.ok()) {
      if (ticket.status().code() == Code::kTimeout) break;
      return ticket.status();
    }
    if (ticket.value().size() > kMostTicketBytes) continue;  // not written by an aggregator of this version
    if (!ticket.value().empty() && seen_.insert(ticket.value()).second) tickets.push_back(ticket.value());
  }
  return tickets;
}

std::vector<std::string> Registry::ask(const std::vector<std::string>& tickets, Deadline deadline) {
  std::vector<std::byte> random(kTicketBytes);
  if (!fill_random(random).ok()) return {};
  const std::string question = hex(random);
  std::vector<std::string> willing;
  for (const std::string& ticket : tickets) static_cast<void>(store_->set(key("ask", ticket), question));
  for (const std::string& ticket : tickets) {
    const auto answer = store_->get(key("yes", ticket), left(deadline));
    if (answer.ok() && answer.value() == question) willing.push_back(ticket);
  }
  return willing;
}

Status Registry::appoint(const std::vector<std::string>& tickets, Appointment appointment) {
  appointment.aggregators = static_cast<int>(tickets.size());
  for (const std::string& ticket : tickets) {
    if (Status bad = store_->set(key("place", ticket), to_text(appointment)); !bad.ok()) return bad;
    ++appointment.index;
  }
  return {};
}

Status Candidacy::offer() {
  std::vector<std::byte> random(kTicketBytes);
  if (Status bad = fill_random(random); !bad.ok()) return bad;
  ticket_ = hex(random);
  answered_ = false;
  return slot_ < 0 ? take_slot(ticket_) : store_->set(slot_key(slot_), ticket_);
}

Status Candidacy::take_slot(const std::string& ticket) {
  for (int slot = 0; slot < kMostServers; ++slot) {
    const auto holder = store_->get(slot_key(slot), kGlance);
    if (!holder.ok() && holder.status().code() != Code::kTimeout) return holder.status();
    if (holder.ok() && !holder.value().empty()) continue;
    if (Status bad = store_->set(slot_key(slot), ticket); !bad.ok()) return bad;
    std::this_thread::sleep_for(kSettleTime);
    const auto now = store_->get(slot_key(slot), kGlance);
    if (now.ok() && now.value() == ticket) {
      slot_ = slot;
      return {};
    }
  }
  return {Code::kUnsupported,
          "all " + std::to_string(kMostServers) + " places for aggregators have been taken in this job"};
}

Result<Candidacy::Answer> Candidacy::await(Deadline deadline, Appointment* appointment) {
  if (!answered_) {
    const auto asked = store_->get(key("ask", ticket_), left(deadline));
    if (!asked.ok()) {
      if (asked.status().code() != Code::kTimeout) return asked.status();
      if (Status bad = keep_slot(); !bad.ok()) return bad;
      return Answer::kNotYet;
    }
    if (asked.value().size() > kMostTicketBytes) return Answer::kUnreadable;
    withdraw();  // so that no other group asks
    if (Status bad = store_->set(key("yes", ticket_), asked.value()); !bad.ok()) return bad;
    answered_ = true;
    place_due_ = Clock::now() + kPlaceTime;
  }
  const auto place = store_->get(key("place", ticket_), left(deadline));
  if (!place.ok()) {
    if (place.status().code() != Code::kTimeout) return place.status();
    return Clock::now() < place_due_ ? Answer::kNotYet : Answer::kPassedOver;
  }
  const auto read = appointment_from_text(place.value());
  if (!read) return Answer::kUnreadable;
  *appointment = *read;
  return Answer::kAppointed;
}

Status Candidacy::keep_slot() {
  const auto holder = store_->get(slot_key(slot_), kGlance);
  if (!holder.ok() || holder.value() == ticket_) return {};
  slot_ = -1;
  return take_slot(ticket_);
}

void Candidacy::withdraw() {
  if (slot_ >= 0) static_cast<void>(store_->set(slot_key(slot_), ""));
  slot_ = -1;  // another aggregator may take the slot now
}

}  // namespace braid

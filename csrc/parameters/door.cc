// SPDX-License-Identifier: Apache-2.0
// The door of a server: it admits the workers of the beginning, and then follows the list of those that come late.
#include <charconv>
#include <iterator>
#include <utility>

#include "base/caught.h"
#include "base/log.h"
#include "parameters/list.h"
#include "parameters/service.h"
#include "rendezvous/store_until.h"

namespace braid {
namespace {

constexpr milliseconds kLookForLate{200};
// The same, while one stands in the list and has not come yet.
constexpr milliseconds kLookForExpected{50};
// A late worker that has not come to this server by then is dead.
constexpr milliseconds kLateComes{120'000};
// How long a server whose settings differ stays, to tell the workers.
constexpr milliseconds kRefusing{10'000};

}  // namespace

// Other workers came, or did not: then the beginning fails here and, as the pairs end, with them.
Status ParameterService::await_workers(const GiveUp& give_up) {
  if (!server_ || setup_.is_late) return {};
  const Deadline deadline = call_deadline();
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (!admission_.ok()) return admission_;
    }
    const int here = server_->arrivals(setup_.workers);
    if (Status refused = server_->refusal(); !refused.ok()) return refused;
    if (here == setup_.workers) return {};
    if (Clock::now() > deadline) {
      return {Code::kTimeout,
              "only " + std::to_string(here) + " of " + std::to_string(setup_.workers) + " workers have joined"};
    }
    if (give_up && give_up()) return {Code::kAborted, "the wait for workers was given up"};
    std::this_thread::sleep_for(kGlance);
  }
}

// Settings differ. Stays for a while, so that all workers come and hear of it.
void ParameterService::await_refused() {
  const Deadline until = Clock::now() + kRefusing;
  while (server_ && server_->arrivals(setup_.workers) < setup_.workers && Clock::now() < until) {
    std::this_thread::sleep_for(kGlance);
  }
}

void ParameterService::keep_door() {
  const Status bad = caught("admitting workers", [&] {
    StoreUntil store(setup_.door_store, [this] { return is_stopping(); });
    const bool has_first = server_ && !setup_.newcomer_takes;
    if (Status failed = has_first ? admit_first(store) : Status(); !failed.ok()) {
      const std::lock_guard lock(mutex_);
      if (admission_.ok()) admission_ = failed;
      return;
    }
    follow_list(store);
  });
  if (bad.ok()) return;
  const std::lock_guard lock(mutex_);
  if (admission_.ok()) admission_ = bad;
}

Status ParameterService::admit_first(Store& store) {
  for (int worker = 0; worker < setup_.workers && !is_stopping(); ++worker) {
    if (worker == setup_.member) continue;
    if (Status failed = admit(store, worker, setup_.options.timeout); !failed.ok()) return failed;
  }
  return {};
}

Status ParameterService::admit(Store& store, int worker, milliseconds timeout) {
  Options options = setup_.options;
  options.timeout = timeout;
  auto pair =
      Pair::form(engine_, store, Pair::kServer, pair_name(setup_.member, worker), worker_text(worker), options);
  if (!pair.ok()) return pair.status();
  const int from = is_source(worker) ? server_at(setup_, place_of_source(worker)) : worker;
  const std::string who = who_is(from, store, *pair.value());
  const std::string name = is_source(worker) ? server_text(from, who) : who;
  pair.value()->set_peer(name);
  auto session = std::make_unique<Session>(*server_, worker, name, std::move(pair).value());
  const std::lock_guard lock(mutex_);
  arrived_.push_back(std::move(session));
  ring(engine_->bell());
  return {};
}

// ---- Who comes late

void ParameterService::follow_list(Store& store) {
  while (!is_stopping()) {
    if (copier_ && (!setup_.newcomer_takes || server_->holds_shards())) register_backup(store);
    if (setup_.newcomer_takes) admit_announced(store);
    admit_late(store);
    const Status read = read_entry(store, [this] { return is_stopping(); });
    if (read.ok()) continue;
    if (read.code() == Code::kAborted) return;
    if (read.code() != Code::kTimeout) {
      if (server_) {
        log(LogLevel::kWarning,
            "parameter service \"" + setup_.name + "\" admits no more workers: its store is gone");
      }
      return;
    }
    const Deadline again = Clock::now() + (late_.empty() ? kLookForLate : kLookForExpected);
    while (Clock::now() < again && !is_stopping()) std::this_thread::sleep_for(milliseconds(10));
  }
}

Status ParameterService::read_entry(Store& store, const GiveUp& give_up) {
  const std::string key = list_key(setup_.name, next_in_list_);
  const auto entry = store.get(key, kGlance);
  if (!entry.ok()) return entry.status();
  std::this_thread::sleep_for(2 * kSettleTime);  // somebody else may take the place from this one
  ++next_in_list_;
  const auto settled = store.get(key, kGlance);
  const std::string& text = settled.ok() ? settled.value() : entry.value();
  if (text.starts_with(kServerEntry)) {
    const int place = list_places_++;
    if (copier_) copier_->grow(list_places_);
    if (is_worker_) reach_newcomer(place, store, give_up);
    return {};
  }
  if (!server_) return {};
  if (text.starts_with(kCopiesEntry)) {
    form_copies(store, text);
    return {};
  }
  int worker = -1;
  std::from_chars(text.data(), text.data() + text.size(), worker);
  if (worker < setup_.workers || worker > kMostMembers || worker == setup_.member) return {};
  if (setup_.newcomer_takes) {
    unannounced_.insert(worker);
  } else {
    late_.push_back({worker, next_in_list_ - 1, Clock::now() + kLateComes});
  }
  return {};
}

void ParameterService::admit_late(Store& store) {
  for (auto at = late_.begin(); at != late_.end() && !is_stopping();) {
    const LateWorker late = *at;
    if (!store.get(coming_key(setup_.name, place_, late.in_list), kGlance).ok()) {
      at = Clock::now() > late.until ? late_.erase(at) : std::next(at);
      continue;
    }
    at = late_.erase(at);
    if (Status failed = admit(store, late.worker, kAnnouncedPair); !failed.ok()) {
      log(LogLevel::kWarning, "parameter service \"" + setup_.name + "\": " + failed.message());
    } else {
      log(LogLevel::kInfo, "parameter service \"" + setup_.name + "\": " + worker_text(late.worker) + " has come");
    }
  }
}

}  // namespace braid

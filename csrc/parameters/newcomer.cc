// SPDX-License-Identifier: Apache-2.0
// Servers that come late. One writes itself into the list of those that come late (list.h). Every worker that reads it
// there says so, and they make a pair:
//
//   braid/parameters/<name>/seen/<place>/<worker>
//
// The worker with the lowest number then asks servers that hold more to give shards, one after the other. It brings
// them as it would from a server that leaves (handover.cc). Others hear of it when such a server refuses their calls. A
// server gives none before the newcomer has a pair with each of its own workers.
#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "base/log.h"
#include "parameters/list.h"
#include "parameters/placement.h"
#include "parameters/service.h"
#include "rendezvous/store_until.h"

namespace braid {
namespace {

constexpr milliseconds kAskNewcomer{100};
// A newcomer waits so long for its first worker.
constexpr milliseconds kFirstWorker{20'000};

std::string seen_key(const std::string& name, int place, int worker) {
  return "braid/parameters/" + name + "/seen/" + std::to_string(place) + "/" + std::to_string(worker);
}

// The relative size of what each server should hold; the mean for one that has come late.
std::vector<double> weights_of(const ServiceSetup& setup, size_t places) {
  std::vector<double> weights = setup.shares;
  if (weights.empty()) weights.assign(setup.servers.size(), 1.0);
  const double mean = std::accumulate(weights.begin(), weights.end(), 0.0) / static_cast<double>(weights.size());
  weights.resize(places, mean);
  return weights;
}

}  // namespace

// ---- The newcomer

Status ParameterService::enlist(ServiceSetup& setup, const GiveUp& give_up) {
  StoreUntil store(setup.store, [&] { return give_up && give_up(); });
  std::random_device random;
  const std::string text = std::string(kServerEntry) + std::to_string(random()) + "." + std::to_string(random());
  const auto written = write_in_list(setup.name, store, text);
  if (!written.ok()) return written.status();
  int before = 0;
  for (int k = 0; k < written.value(); ++k) {
    const auto entry = store.get(list_key(setup.name, k), kGlance);
    if (!entry.ok()) return entry.status();
    before += entry.value().starts_with(kServerEntry) ? 1 : 0;
  }
  if (before >= kMostNewcomers) {
    return {Code::kInvalidArgument, std::to_string(before) + " servers have come late already, and no more can"};
  }
  setup.member = server_at(setup, static_cast<int>(setup.servers.size()) + before);
  return {};
}

Status ParameterService::await_a_worker(const GiveUp& give_up) {
  const Deadline deadline = Clock::now() + kFirstWorker;
  while (server_->workers().empty()) {
    if (Status refused = server_->refusal(); !refused.ok()) return refused;
    if (Clock::now() > deadline) return {Code::kTimeout, "no worker is there"};
    if (give_up && give_up()) return {Code::kAborted, "the wait for workers was given up"};
    std::this_thread::sleep_for(kGlance);
  }
  return {};
}

void ParameterService::admit_announced(Store& store) {
  for (auto at = unannounced_.begin(); at != unannounced_.end() && !is_stopping();) {
    const int worker = *at;
    if (!store.get(seen_key(setup_.name, place_, worker), kGlance).ok()) {
      ++at;
      continue;
    }
    at = unannounced_.erase(at);
    if (Status failed = admit(store, worker, kAnnouncedPair); !failed.ok()) {
      log(LogLevel::kWarning, "parameter service \"" + setup_.name + "\": " + failed.message());
    }
  }
}

// ---- A worker

void ParameterService::reach_newcomer(int place, Store& store, const GiveUp& give_up) {
  const auto at = static_cast<size_t>(place);
  if (at >= clients_.size()) return;
  Status bad = store.set(seen_key(setup_.name, place, setup_.member), "1");
  if (bad.ok()) bad = meet(place, store);
  const bool begins = setup_.is_late && !has_clients_.load();  // and joins all servers when it has met them
  if (bad.ok() && !begins) bad = join(place, give_up);
  if (!bad.ok()) miss(place, bad);
  const std::lock_guard lock(mutex_);
  if (bad.ok()) newcomers_.try_emplace(place);
  places_.store(at + 1, std::memory_order_release);
  ring(engine_->bell());
}

bool ParameterService::tend_newcomers() {
  bool moved = false;
  for (auto at = newcomers_.begin(); at != newcomers_.end();) {
    const int place = at->first;
    Newcomer& newcomer = at->second;
    ClientCall& call = newcomer.call;
    if (!call.is_over()) {
      ++at;
      continue;
    }
    const bool was_asked = std::exchange(newcomer.is_sent, false);
    const bool has_failed = was_asked && !call.status.ok();
    const bool has_its_part = was_asked && call.answer.verdict == Verdict::kDone;
    if (is_lost(place) || !failure_.ok() || has_failed || has_its_part) {
      at = newcomers_.erase(at);
      continue;
    }
    ++at;
    const auto now = Clock::now();
    if (was_asked) {
      moved = true;
      newcomer.ask_at = now + kAskNewcomer;
      if (call.answer.verdict == Verdict::kSend) bring_shard(place, newcomer);
    }
    if (now < newcomer.ask_at) continue;
    moved = newcomer.is_sent = true;
    call.call = {};
    call.answer = {};
    call.status = {};
    call.call.kind = CallKind::kOffer;
    call.call.count = extents_[0].count;
    call.call.place = newcomer.has_its_part ? 1 : 0;
    call.deadline = call_deadline();
    clients_[static_cast<size_t>(place)]->start(call);
  }
  return moved;
}

// Lets the newcomer have one shard more, or says that it has its part.
void ParameterService::bring_shard(int place, Newcomer& newcomer) {
  std::vector<int> homes;
  for (size_t shard = 0; shard < extents_.size(); ++shard) {
    homes.push_back(homes_[shard].load());
    if (is_asked(shard) && (!is_known(homes.back()) || is_lost(homes.back()))) return;
  }
  if (std::any_of(rescues_.begin(), rescues_.end(), [](const auto& rescue) { return rescue != nullptr; })) return;
  std::vector<double> weights = weights_of(setup_, static_cast<size_t>(place) + 1);
  // Those behind it came later.
  if (std::any_of(homes.begin(), homes.end(), [place](int home) { return home > place; })) return;
  const Answer& offer = newcomer.call.answer;
  const auto due = shares_for_newcomer(extents_, homes, weights, offer.steps);
  if (!due.empty()) return begin_share(due.front(), place, offer.shard_version);
  newcomer.has_its_part = true;
  newcomer.ask_at = Clock::now();
  log(LogLevel::kInfo, "parameter service \"" + setup_.name + "\": " + server_text_at(place) +
                           " has come late, and now holds " +
                           std::to_string(std::count(homes.begin(), homes.end(), place)) + " of " +
                           std::to_string(homes.size()) + " shards");
}

void ParameterService::begin_share(size_t shard, int place, uint64_t workers) {
  auto rescue = std::make_unique<Rescue>();
  rescue->shard = static_cast<int>(shard);
  rescue->from = homes_[shard].load();
  rescue->to = place;
  rescue->is_hand_over = rescue->is_share = true;
  rescue->workers = workers;
  rescue->moves = moves_[shard];
  rescue->state = Rescue::State::kTaking;
  rescue->due = call_deadline();
  rescue->why = {Code::kAborted, server_text_at(rescue->from) + " gives a shard away"};
  rescue->ask_at = Clock::now();
  rescues_[shard] = std::move(rescue);
}

}  // namespace braid

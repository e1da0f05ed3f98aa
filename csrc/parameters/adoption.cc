// SPDX-License-Identifier: Apache-2.0
// How a server takes over the shard of one that was lost. It does so once every worker that it has says that the former
// server is lost. So a shard never has two owners: as long as one worker reaches the former server, that one is the
// owner. Every worker watches all servers all the time, and says so even while it computes.
#include <algorithm>

#include "parameters/server.h"

namespace braid {
namespace {

// How long the chosen worker may take to begin to install a shard. Then another one is chosen.
constexpr milliseconds kInstallDue{10'000};
// If nobody has values, the others wait so long for a worker that has not called: it may come with some.
constexpr milliseconds kOffersDue{10'000};

}  // namespace

uint64_t Server::Adoption::most_moves() const {
  uint64_t most = 0;
  for (const auto& [worker, offer] : offers) most = std::max(most, offer.moves);
  return most;
}

// A server that does not know of the worker's move has another past: then nothing is certain.
uint64_t Server::left_of(const Job& job, const Entry& entry) {
  const uint64_t before = job.call.moves - std::min<uint64_t>(job.call.moves, 1);
  return entry.moves > before ? entry.losses.least_since(before) : 0;
}

// Whether there is memory for the shard. The first worker that asks decides it for all.
bool Server::reserve(const Job& job, Entry& entry) {
  if (entry.refused_moves >= job.call.moves) return false;
  if (!entry.is_reserved) entry.is_reserved = has_memory_for(entry);
  if (!entry.is_reserved) entry.refused_moves = job.call.moves;
  return entry.is_reserved;
}

// All workers that had the lost server ask its successor. The one with the newest values installs them.
Verdict Server::adopt_locked(Job& job, Entry& entry) {
  const bool is_kept = job.call.hand_over == HandOver::kKeep;
  if (is_kept && !is_sealed_) stay_locked();
  const bool is_back = is_kept || (job.call.hand_over == HandOver::kYes && !is_leaving_);
  if (is_back && entry.is_given && entry.gone_to < 0 && entry.given_to == job.worker) {
    entry.is_given = false;  // this worker found no other server for it
    entry.given_to = -1;
    entry.shard.give_up(false);
  }
  if (entry.is_here()) return Verdict::kDone;
  // Who leaves takes over nothing. But a worker that was told to bring values may be on its way.
  if (!may_take(job, entry) && entry.adoption.chosen < 0) {
    refuse(job, entry);
    return Verdict::kFailed;
  }
  Adoption& adoption = entry.adoption;
  if (!reserve(job, entry)) {
    refuse_for_memory(job, entry);
    return Verdict::kFailed;
  }
  const auto now = Clock::now();
  if (adoption.offers.empty()) adoption.began_at = now;
  adoption.offers[job.worker] = {job.call.steps, job.call.moves, job.call.base};
  const bool have_all_offered = std::all_of(workers_.begin(), workers_.end(), [&](int worker) {
    return adoption.offers.contains(worker) || !have_called_.contains(worker);
  });
  const auto chosen = adoption.offers.find(adoption.chosen);
  const bool is_chosen_gone = chosen == adoption.offers.end() || chosen->second.values <= kNoMemory ||
                              now > adoption.chosen_at + kInstallDue;
  if (is_chosen_gone && have_all_offered) {
    const auto newest = std::max_element(adoption.offers.begin(), adoption.offers.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (entry.is_dormant && Adoption::Offer{kWholeValues, entry.moves, entry.shard.version()} >= newest->second) {
      entry.is_dormant = false;  // it came from the lost server just in time
      entry.moves = std::max(entry.moves, adoption.most_moves());
      entry.losses.add(entry.moves, entry.shard.version());
      adoption = {};
      return Verdict::kDone;
    }
    const bool is_elastic = options_.rule.kind == RuleKind::kElastic;  // workers have no values of the server
    const Adoption::Offer copy{kWholeValues, entry.copy.moves + 1, entry.copy.version};
    if (has_copy(entry, job) && (is_elastic || copy >= newest->second)) {
      wake_copy(job, entry, newest->second);
      return Verdict::kDone;
    }
    if (newest->second.values == kNoValues) {
      const bool are_all_here = adoption.offers.size() == workers_.size();
      if (!are_all_here && now < adoption.began_at + kOffersDue) return Verdict::kWait;
      job.status = {Code::kPeerLost, "no worker has values of shard " + std::to_string(job.call.shard) +
                                         ": its server was lost before any had come from there"};
      return Verdict::kFailed;
    }
    adoption.chosen = newest->first;
    adoption.chosen_at = now;
  }
  return adoption.chosen == job.worker ? Verdict::kSend : Verdict::kWait;
}

}  // namespace braid

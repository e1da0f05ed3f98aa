// SPDX-License-Identifier: Apache-2.0
// How a server takes over the shard of one that was lost.
#include <algorithm>

#include "parameters/server.h"

namespace braid {
namespace {

// How long a server waits until all workers have said which version of a lost shard they have.
constexpr milliseconds kOffersDue{1000};
// How long the chosen worker may take to begin to install a shard. Then another one is chosen.
constexpr milliseconds kInstallDue{10'000};

}  // namespace

// All workers that had the lost server ask its successor. The one with the newest values installs them.
Verdict Server::adopt_locked(Job& job, Entry& entry) {
  const bool is_kept = job.call.hand_over == HandOver::kKeep;
  if (is_kept && !is_sealed_) stay_locked();
  if (is_kept && entry.is_given && entry.gone_to < 0 && entry.given_to == job.worker) {
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
  if (owner_lives_ && owner_lives_(job.call.shard)) return Verdict::kWait;
  Adoption& adoption = entry.adoption;
  const auto now = Clock::now();
  if (adoption.offers.empty()) adoption.began = now;
  adoption.offers[job.worker] = job.call.base;
  const bool have_all_offered = adoption.offers.size() >= workers_.size();
  const bool is_chosen_gone = !adoption.offers.contains(adoption.chosen) || now > adoption.chosen_at + kInstallDue;
  if (is_chosen_gone && (have_all_offered || now > adoption.began + kOffersDue)) {
    const auto newest = std::max_element(adoption.offers.begin(), adoption.offers.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (entry.is_dormant &&
        entry.shard.version() >= newest->second) {  // it came from the lost server just in time
      entry.is_dormant = false;
      return Verdict::kDone;
    }
    adoption.chosen = newest->first;
    adoption.chosen_at = now;
  }
  return adoption.chosen == job.worker ? Verdict::kSend : Verdict::kWait;
}

}  // namespace braid

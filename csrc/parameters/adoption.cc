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
// The same where the owner hands the shard over. It gives it to one worker only, so to choose another one is safe, and
// that one hears from the owner if the shard stays there.
constexpr milliseconds kTakeDue{200};

}  // namespace

// All workers that had the lost server ask its successor. The one with the newest values installs them.
Verdict Server::adopt_locked(const Job& job, Entry& entry) {
  if (job.call.hand_over == HandOver::kKeep) return keep_locked(entry);
  if (entry.is_here()) return Verdict::kDone;
  const bool is_given = job.call.hand_over == HandOver::kYes;
  if (!is_given && owner_lives_ && owner_lives_(job.call.shard)) return Verdict::kWait;
  Adoption& adoption = entry.adoption;
  const auto now = Clock::now();
  if (adoption.offers.empty()) adoption.began = now;
  adoption.offers[job.worker] = job.call.base;
  const milliseconds due = is_given ? kTakeDue : kInstallDue;
  const bool is_chosen_gone = !adoption.offers.contains(adoption.chosen) || now > adoption.chosen_at + due;
  // Who was told to bring the shard and asks again could not. Another one may.
  if (!is_chosen_gone && adoption.chosen == job.worker && adoption.is_told) {
    const auto after = adoption.offers.upper_bound(job.worker);
    adoption.chosen = (after == adoption.offers.end() ? adoption.offers.begin() : after)->first;
    adoption.is_told = false;
    adoption.chosen_at = now;
  }
  const bool have_all_offered = adoption.offers.size() >= workers_.size();
  if (is_chosen_gone && (is_given || have_all_offered || now > adoption.began + kOffersDue)) {
    const auto newest = std::max_element(adoption.offers.begin(), adoption.offers.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
    adoption.chosen = newest->first;
    adoption.is_told = false;
    adoption.chosen_at = now;
  }
  if (adoption.chosen != job.worker) return Verdict::kWait;
  adoption.is_told = true;
  return Verdict::kSend;
}

}  // namespace braid

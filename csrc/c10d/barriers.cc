// SPDX-License-Identifier: Apache-2.0
// Backend's barriers: the plain one, and the one that names missing ranks.
#include <c10/util/Exception.h>

#include <algorithm>

#include "c10d/backend.h"
#include "c10d/gil.h"

namespace braid::adapter {
namespace {

// Other ranks wait this much longer than rank 0, so that rank 0 reports the missing ranks.
constexpr milliseconds kLongerThanRankZero{2000};

std::string list_of(const std::vector<Node>& ranks) {
  std::string text;
  for (const Node rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

Backend::Work Backend::barrier(const ::c10d::BarrierOptions& options) { return start(call_barrier(options)); }

// The messages are Gloo's, because scripts and tests know them.
void Backend::monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) {
  const bool given = options.timeout.count() >= 0;  // c10d's "unset" is -1
  const milliseconds timeout = given ? options.timeout : timeout_.load();
  TORCH_CHECK_WITH(DistBackendError, timeout.count() > 0, "Rank ", rank_, " timed out in monitoredBarrier after ",
                   timeout.count(), " ms.");
  const WithoutGil without_gil;
  wait_for_courier();
  Operation operation;  // a barrier by default
  operation.timeout = rank_ == 0 ? timeout : timeout + kLongerThanRankZero;
  operation.inline_for = kLookUpEvery;
  auto started = group().start(std::move(operation), true);
  raise_if_failed(started.status(), *members_);
  Interrupts interrupts;
  static_cast<void>(wait_looking_up(*started.value(), kNoDeadline, interrupts.give_up()));
  throw_if_any(interrupts);
  const Status status = started.value()->status();
  if (status.ok()) return;
  const std::vector<Node> missing = started.value()->missing();
  const std::string why = "\n" + status.message();
  TORCH_CHECK_WITH(DistBackendError, !missing.empty(), "Rank ", rank_, " successfully reached monitoredBarrier, ",
                   "but received errors while waiting for send/recv from rank 0. ",
                   "Please check rank 0 logs for faulty rank.", why);
  TORCH_CHECK_WITH(DistBackendError, !wait_all_ranks, "Ranks ", list_of(missing),
                   " failed to pass monitoredBarrier in ", timeout.count(), " ms", why);
  TORCH_CHECK_WITH(DistBackendError, false, "Rank ", missing.front(), " failed to pass monitoredBarrier in ",
                   timeout.count(), " ms", why);
}

}  // namespace braid::adapter

// SPDX-License-Identifier: Apache-2.0
// Exchanges the endpoints of a new group's ranks through a store. The store may still hold endpoints of an earlier
// group of the same name: of a group that was destroyed and formed again, or of a job that was restarted.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/store.h"
#include "rendezvous/endpoint.h"
#include "schedule/collective.h"

namespace braid {

struct EndpointSet {
  std::vector<RankEndpoint> endpoints;  // by rank; none is of an earlier rendezvous
  std::string token;                    // the same on all ranks; new in every rendezvous
};

// Writes this rank's endpoint into the store. Then reads the endpoints of the others, until all ranks have
// confirmed the same set. Every endpoint has a fresh nonce, so a set with an old endpoint is never confirmed by
// all.
// `prepare` is called with each new set before this rank confirms it: once, or rarely more often.
// kTimeout names a rank that has not come; kMismatch names a rank whose settings differ.
Result<EndpointSet> exchange_endpoints(Store& store, const std::string& prefix, Node rank, int ranks,
                                       const RankEndpoint& mine, Deadline deadline,
                                       const std::function<Status(const std::vector<RankEndpoint>&)>& prepare);

// For a reason not to form the group that all ranks find in the same set of endpoints. Rank 0 may hold the store, which
// ends with it. So it waits until the others have the set as well, for 5 s at most. Returns the reason.
Status end_together(Store& store, const std::string& prefix, Node rank, int ranks, Status reason);

// Waits for the value that rank `of` writes under `what`. kTimeout says that the rank has not come.
Result<std::string> await(Store& store, const std::string& prefix, const std::string& what, Node of,
                          Deadline deadline);

}  // namespace braid

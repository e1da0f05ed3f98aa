// SPDX-License-Identifier: Apache-2.0
// Tells all ranks of a new group who the others are, through a store that may still hold what an earlier group of
// the same name left there: a group destroyed and formed again, or a job restarted on the same store.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/store.h"
#include "rendezvous/endpoint.h"
#include "schedule/collective.h"

namespace braid {

struct EndpointSet {
  std::vector<RankEndpoint> endpoints;  // by rank, all of this rendezvous
  std::string token;                    // the same on all ranks, and of this rendezvous alone
};

// Puts this rank's endpoint into the store and reads the others' until all ranks have confirmed that they see the same
// set. Every endpoint holds a fresh nonce, so a set with an endpoint of the past can never be confirmed by all.
// `prepare` is called with each new set that this rank sees, before it confirms it; once or, rarely, more often.
// kTimeout names the rank that has not come; kMismatch the rank whose settings differ.
Result<EndpointSet> exchange_endpoints(Store& store, const std::string& prefix, Node rank, int ranks,
                                       const RankEndpoint& mine, Deadline deadline,
                                       const std::function<Status(const std::vector<RankEndpoint>&)>& prepare);

// A value that `of` has put or will put under `what`; kTimeout says that the rank has not come.
Result<std::string> await(Store& store, const std::string& prefix, const std::string& what, Node of,
                          Deadline deadline);

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// An aggregator: a process without a rank that joins a job's group, adds up its part of every large all_reduce, and
// sends the sums back: the synchronous parameter server.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/store.h"
#include "options/options.h"

namespace braid {

struct ServerCalls {
  std::function<bool()> stopped;                     // asked several times a second
  std::function<void(const std::string& line)> say;  // what happens, for the user to read
};

// Registers in the job's store, joins whatever group asks, works for it until it ends or fails, and registers again,
// until stopped, which is ok, or until the store fails. Uses this process's engine. `options.timeout` is for the store
// and for joining.
Status serve(const std::shared_ptr<Store>& store, const Options& options, const ServerCalls& calls);

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// An aggregator is a process without a rank that joins a job's group. It adds up its part of every large
// all_reduce and sends the sums back, as a synchronous parameter server does.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/store.h"
#include "options/options.h"

namespace braid {

struct ServerCalls {
  std::function<bool()> stopped;                     // returns true to stop; called several times a second
  std::function<void(const std::string& line)> say;  // shows the user what happens
};

// Registers in the job's store, joins the group that asks for it, and works until that group ends or fails. Then
// it registers again. Returns ok once stopped, or the error of the store. Uses this process's engine. Ignores
// `options.timeout`: joining has a limit of its own.
Status serve(const std::shared_ptr<Store>& store, const Options& options, const ServerCalls& calls);

}  // namespace braid

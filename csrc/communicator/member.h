// SPDX-License-Identifier: Apache-2.0
// A rank's membership in a group: what every part of the group on this rank must know.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/clock.h"
#include "engine/engine_impl.h"
#include "options/options.h"
#include "schedule/collective.h"

namespace braid {

// Never changes while the group lives.
struct Member {
  std::shared_ptr<EngineImpl> engine;
  Node rank = 0;
  int nodes = 1;  // the ranks, and after them options.aggregators
  int ranks = 1;  // the nodes without aggregators
  std::string name;
  Options options;  // without give_up, which is for the rendezvous only
};

// The timeout of a group's operations. Thread safe.
class Timeout {
 public:
  explicit Timeout(milliseconds timeout) : ms_(timeout.count()) {}

  void set(milliseconds timeout) { ms_ = timeout.count(); }
  milliseconds get() const { return milliseconds(ms_.load()); }
  // The timeout of an operation that states `own`; 0: it states none.
  milliseconds of(milliseconds own) const { return own.count() > 0 ? own : get(); }

 private:
  std::atomic<milliseconds::rep> ms_;
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// A store for a rendezvous that logs now and then which ranks have not come.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/store.h"
#include "schedule/collective.h"

namespace braid {

// Logs a line when the rendezvous has lasted `first`, then twice as long, and so on; 0 logs none. Logs one more
// line when a rendezvous with such lines ends. The store must outlive this object.
class RendezvousNotice final : public Store {
 public:
  RendezvousNotice(Store& store, Node rank, int ranks, std::string name, milliseconds first);
  ~RendezvousNotice() override;

  Status set(const std::string& key, const std::string& value) override { return store_.set(key, value); }
  Result<std::string> get(const std::string& key, milliseconds timeout) override;

 private:
  void tell(const std::string& key);
  bool has_come(Node node);

  Store& store_;
  const Node rank_;
  const int ranks_;
  const std::string name_;
  const Clock::time_point begun_ = Clock::now();
  Clock::duration notice_after_;  // 0: none
  int notices_ = 0;
};

}  // namespace braid

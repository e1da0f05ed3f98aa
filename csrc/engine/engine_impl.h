// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>

#include "engine/engine.h"
#include "engine/progress.h"
#include "links/link_memory.h"
#include "memory/pool.h"
#include "transport/death_watch.h"
#include "transport/reactor.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace braid {

// The engine as communicators see it. Members are destroyed from the last to the first. So the progress thread
// stops before the wires that it polls are destroyed.
class EngineImpl final : public Engine {
 public:
  EngineImpl(std::unique_ptr<ShmDoorbell> bell, const Options& options);
  ~EngineImpl() override;

  DoorbellWord& bell() { return bell_->word(); }
  const Neighbours& neighbours() { return bell_->neighbours(); }
  ShmDoorbell& shm_bell() { return *bell_; }
  DeathWatch& deaths() { return *deaths_; }
  Pool& pool() { return pool_; }
  LinkMemory& links() { return links_; }
  ProgressThread& progress() { return progress_; }
  Reactor& reactor() { return reactor_; }
  // The TCP listener. The first call opens it. May be called from any thread.
  Result<std::shared_ptr<TcpEndpoint>> tcp();
  // Tells how many ranks of a group share `cores` cores of this machine. Once ranks outnumber cores in any group
  // of any engine, waiting threads yield their core.
  void expect_local_ranks(size_t ranks, size_t cores);

 private:
  static constexpr int64_t kAwakeNs = 200'000;

  const Options options_;
  const std::unique_ptr<ShmDoorbell> bell_;
  const std::unique_ptr<DeathWatch> deaths_;
  Reactor reactor_;
  Pool pool_;
  LinkMemory links_;
  std::mutex mutex_;
  std::shared_ptr<TcpEndpoint> tcp_;
  bool is_crowded_ = false;
  ProgressThread progress_;
};

}  // namespace braid

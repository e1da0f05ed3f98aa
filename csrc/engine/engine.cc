// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "engine/engine_impl.h"

namespace braid {
namespace {

constexpr size_t kKeptScratchBytes = size_t{64} << 20;

// How threads wait is set for the whole process, which may have several engines: one for groups, one for parameter
// services.
std::atomic<int> crowded_engines{0};

std::string links_file(const Options& options) {
  return options.links.empty() && !options.cache_dir.empty() ? options.cache_dir + "/links" : "";
}

}  // namespace

WaitTotals waits_of_process() {
  const WaitCounts& counts = wait_counts();
  return {counts.turns.load(), counts.yields.load(), counts.sleeps.load()};
}

Result<std::shared_ptr<Engine>> Engine::create(const Options& options) {
  auto bell = ShmDoorbell::create();
  if (!bell.ok()) return bell.status();
  return std::shared_ptr<Engine>(std::make_shared<EngineImpl>(std::move(bell).value(), options));
}

EngineImpl::EngineImpl(std::unique_ptr<ShmDoorbell> bell, const Options& options)
    : options_(options),
      bell_(std::move(bell)),
      deaths_(make_death_watch()),
      pool_(kKeptScratchBytes),
      links_(links_file(options)),
      progress_(bell_->word(), bell_->neighbours()) {
  const auto name = std::find(kWaitNames.begin(), kWaitNames.end(), options.wait);
  if (name != kWaitNames.end()) set_wait_mode(static_cast<WaitMode>(name - kWaitNames.begin()));
}

Result<std::shared_ptr<TcpEndpoint>> EngineImpl::tcp() {
  const std::lock_guard lock(mutex_);
  if (!tcp_) {
    TcpOptions tcp;
    tcp.interface = options_.interface;
    tcp.ports = options_.ports;
    tcp.reach = options_.reach;
    tcp.connections = options_.tcp_connections;
    tcp.peer_timeout = options_.peer_timeout;
    auto endpoint = TcpEndpoint::create(tcp, reactor_);
    if (!endpoint.ok()) return endpoint.status();
    tcp_ = std::move(endpoint).value();
  }
  return tcp_;
}

EngineImpl::~EngineImpl() {
  if (is_crowded_) set_waiting(kAwakeNs, --crowded_engines > 0);
}

void EngineImpl::expect_local_ranks(size_t ranks, size_t cores) {
  const std::lock_guard lock(mutex_);
  if (ranks > cores && !std::exchange(is_crowded_, true)) ++crowded_engines;
  set_waiting(kAwakeNs, crowded_engines > 0);
}

}  // namespace braid

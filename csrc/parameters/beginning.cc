// SPDX-License-Identifier: Apache-2.0
// How a member of a parameter service begins. Workers of the beginning need no registration: their numbers are known.
// In reaching.cc workers find servers; door.cc has the servers' part. Who comes later writes into a list (list.h);
// newcomer.cc has the servers among them.
#include <algorithm>
#include <utility>

#include "base/caught.h"
#include "communicator/process.h"
#include "parameters/list.h"
#include "parameters/placement.h"
#include "parameters/service.h"

namespace braid {
namespace {

// How long it may take to read what stands in the store already.
constexpr milliseconds kReading{2'000};

std::vector<size_t> counts_of(const std::vector<Extent>& extents) {
  std::vector<size_t> counts;
  for (const Extent& extent : extents) counts.push_back(extent.count);
  return counts;
}

struct ServiceEngine {
  std::mutex mutex;
  std::weak_ptr<Engine> engine;
};

// One engine for all services of the process, apart from the groups' engine: their threads do not wait for each other.
Result<std::shared_ptr<Engine>> engine_of(const ServiceSetup& setup) {
  if (setup.engine) return setup.engine;
  auto& shared = of_this_process<ServiceEngine>();
  const std::lock_guard lock(shared.mutex);
  if (auto engine = shared.engine.lock()) return engine;
  auto made = Engine::create(setup.options);
  if (made.ok()) shared.engine = made.value();
  return made;
}

}  // namespace

Result<std::unique_ptr<ParameterService>> ParameterService::create(ServiceSetup setup, const GiveUp& give_up) {
  if (Status bad = check(setup); !bad.ok()) return bad;
  const size_t pieces = pieces_of(setup.elements, setup.servers.size(), setup.least_piece);
  std::vector<double> shares;
  for (const double share : setup.shares) shares.insert(shares.end(), pieces, share);
  auto extents = place(setup.elements, setup.servers.size() * pieces, shares);
  if (!extents.ok()) return extents.status();
  auto engine = engine_of(setup);
  if (!engine.ok()) return engine.status();
  setup.server.settings = settings_of(setup);
  setup.server.buffers *= static_cast<int>(pieces);  // as many bytes in all
  setup.server.promised_workers = static_cast<size_t>(setup.workers);
  if (setup.newcomer_takes) {
    const Status bad = enlist(setup, give_up);
    if (!bad.ok()) return bad.within("parameter service \"" + setup.name + "\"");
  }
  std::unique_ptr<ParameterService> service(
      new ParameterService(std::move(setup), std::static_pointer_cast<EngineImpl>(std::move(engine).value()),
                           std::move(extents).value()));
  Status bad;
  const Status thrown = caught("beginning a parameter service", [&] { bad = service->begin(give_up); });
  if (!thrown.ok()) bad = thrown;
  if (bad.code() == Code::kMismatch) service->await_refused();
  if (!bad.ok()) return bad.within("parameter service \"" + service->setup_.name + "\"");
  return service;
}

ParameterService::ParameterService(ServiceSetup setup, std::shared_ptr<EngineImpl> engine,
                                   std::vector<Extent> extents)
    : setup_(std::move(setup)),
      engine_(std::move(engine)),
      extents_(std::move(extents)),
      state_vectors_(braid::state_vectors(setup_.server.rule)),
      is_worker_(!setup_.newcomer_takes && (setup_.member < setup_.workers || setup_.is_late)),
      residuals_(setup_.server.coding.push, counts_of(extents_), setup_.member),
      clients_(setup_.servers.size() + (may_grow(setup_) ? kMostNewcomers : 0)),
      places_(setup_.servers.size()),
      names_(clients_.size()),
      versions_(extents_.size()),
      moves_(extents_.size()),
      has_clock_(!setup_.is_late),
      rests_(extents_.size()),
      rescues_(extents_.size()),
      attends_(clients_.size()),
      pushed_(extents_.size()),
      losses_(extents_.size()),
      list_places_(static_cast<int>(setup_.servers.size())) {
  kept_.rounds.resize(extents_.size());
  kept_.is_mixed.resize(extents_.size());
  const size_t pieces = extents_.size() / setup_.servers.size();
  for (size_t shard = 0; shard < extents_.size(); ++shard) homes_.emplace_back(static_cast<int>(shard / pieces));
  for (size_t i = 0; i < clients_.size(); ++i) {
    lost_.emplace_back(false);
    const auto place = static_cast<int>(i);
    if (place_ < 0 && server_at(setup_, place) == setup_.member) place_ = place;
  }
  if (place_ >= 0) {
    server_ = std::make_unique<Server>(setup_.server, extents_, engine_->bell());
    if (setup_.newcomer_takes) server_->come_late(*setup_.newcomer_takes);
    if (setup_.server.replicas > 0) {
      const int known = std::max(place_ + 1, static_cast<int>(setup_.servers.size()));
      copier_ = std::make_unique<Copier>(*server_, place_, known);
    }
  }
}

std::string ParameterService::pair_name(int server, int worker) const {
  return "parameters/" + setup_.name + "/" + std::to_string(server) + "/" + std::to_string(worker);
}

// The other end has written its name before it came to the pair.
std::string ParameterService::who_is(int member, Store& store, const Pair& pair) const {
  const auto who = store.get(who_key(setup_.name, member), kReading);
  return (who.ok() ? who.value() : member_text(member)) + " on " + pair.place();
}

Status ParameterService::begin(const GiveUp& give_up) {
  const std::string who = setup_.who.empty() ? member_text(setup_.member) : setup_.who;
  if (Status bad = setup_.store->set(who_key(setup_.name, setup_.member), who); !bad.ok()) return bad;
  if (server_ && is_worker_) {
    if (Status bad = server_->admit(setup_.member, setup_.server.settings); !bad.ok()) return bad;
    server_->has_heard(setup_.member);
  } else if (setup_.newcomer_takes) {
    for (int worker = 0; worker < setup_.workers; ++worker) unannounced_.insert(worker);
  } else if (server_) {
    server_->await_first(setup_.workers);
  }
  if (server_) doorkeeper_ = std::thread([this] { keep_door(); });
  poller_ = std::thread([this] { poll_until_stopped(); });
  if (is_worker_) {
    if (Status bad = reach_servers(give_up); !bad.ok()) return bad;
    has_clients_.store(true, std::memory_order_release);
    ring(engine_->bell());
    if (!server_ && may_grow(setup_)) doorkeeper_ = std::thread([this] { keep_door(); });
  }
  const Status bad = setup_.newcomer_takes ? await_a_worker(give_up) : await_workers(give_up);
  has_begun_.store(bad.ok(), std::memory_order_release);
  return bad;
}

}  // namespace braid

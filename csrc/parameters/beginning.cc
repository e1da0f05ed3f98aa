// SPDX-License-Identifier: Apache-2.0
// How the members of a parameter service find each other. Workers of the beginning need no registration: their numbers
// are known. A worker that comes later writes its number into the store:
//
//   braid/parameters/<name>/late/<k>    the number of the k-th late worker
#include <algorithm>
#include <charconv>
#include <utility>

#include "base/caught.h"
#include "base/limits.h"
#include "base/log.h"
#include "communicator/process.h"
#include "parameters/placement.h"
#include "parameters/service.h"
#include "rendezvous/store_until.h"

namespace braid {
namespace {

constexpr milliseconds kGlance{1};
constexpr milliseconds kLookForLate{200};
// How long two late workers that take the same place at the same time need to see the conflict.
constexpr milliseconds kSettleTime{50};
// A late worker does not wait longer than this for a server, which may have died. Nor does a server for a late worker.
constexpr milliseconds kLatePairs{20'000};
// How long a server whose settings differ stays, to tell the workers.
constexpr milliseconds kRefusing{10'000};

std::string late_key(const std::string& name, int k) {
  return "braid/parameters/" + name + "/late/" + std::to_string(k);
}

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
  auto extents = place(setup.elements, setup.servers.size(), setup.shares);
  if (!extents.ok()) return extents.status();
  auto engine = engine_of(setup);
  if (!engine.ok()) return engine.status();
  setup.server.settings = settings_of(setup);
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
      is_worker_(setup_.member < setup_.workers || setup_.is_late),
      residuals_(setup_.server.coding.push, counts_of(extents_), setup_.member),
      versions_(extents_.size()),
      moves_(extents_.size()),
      rescues_(extents_.size()) {
  for (size_t i = 0; i < setup_.servers.size(); ++i) {
    homes_.emplace_back(static_cast<int>(i));
    lost_.emplace_back(false);
    if (setup_.servers[i] == setup_.member) {
      server_ = std::make_unique<Server>(setup_.server, extents_, engine_->bell());
    }
  }
  if (server_ && is_worker_) {
    server_->set_owner_lives([this](int shard) {
      return !lost_[static_cast<size_t>(homes_[static_cast<size_t>(shard)].load())].load();
    });
  }
}

std::string ParameterService::pair_name(int server, int worker) const {
  return "parameters/" + setup_.name + "/" + std::to_string(server) + "/" + std::to_string(worker);
}

Status ParameterService::begin(const GiveUp& give_up) {
  if (server_) {
    if (is_worker_) {
      if (Status bad = server_->admit(setup_.member, setup_.server.settings); !bad.ok()) return bad;
      server_->has_heard(setup_.member);
    } else {
      server_->await_first(setup_.workers);
    }
    doorkeeper_ = std::thread([this] { admit_workers(); });
  }
  poller_ = std::thread([this] { poll_until_stopped(); });
  if (is_worker_) {
    if (Status bad = reach_servers(give_up); !bad.ok()) return bad;
    has_clients_.store(true, std::memory_order_release);
    ring(engine_->bell());
  }
  return await_workers(give_up);
}

// ---- A worker

Status ParameterService::reach_servers(const GiveUp& give_up) {
  StoreUntil store(setup_.store, [&] { return give_up && give_up(); });
  clients_.resize(setup_.servers.size());
  if (setup_.is_late) {
    if (Status bad = register_late(store); !bad.ok()) return bad;
  }
  bool reaches_one = false;
  Status last;
  Status mismatch;
  for (size_t place = 0; place < setup_.servers.size(); ++place) {
    const Status bad = reach(place, store, give_up);
    reaches_one |= bad.ok();
    if (bad.ok()) continue;
    if (bad.code() == Code::kMismatch) {  // goes on, so that every server hears of it
      mismatch = bad;
      continue;
    }
    if (!setup_.is_late || bad.code() != Code::kTimeout) return bad;
    last = bad;
    lost_[place].store(true);
  }
  if (!mismatch.ok()) return mismatch;
  return reaches_one ? Status() : last;
}

Status ParameterService::register_late(Store& store) {
  const std::string number = std::to_string(setup_.member);
  for (int k = 0;; ++k) {
    const std::string key = late_key(setup_.name, k);
    const auto holder = store.get(key, kGlance);
    if (holder.ok()) continue;
    if (holder.status().code() != Code::kTimeout) return holder.status();
    if (Status bad = store.set(key, number); !bad.ok()) return bad;
    std::this_thread::sleep_for(kSettleTime);
    const auto now = store.get(key, kGlance);
    if (now.ok() && now.value() == number) return {};
  }
}

Status ParameterService::reach(size_t place, Store& store, const GiveUp& give_up) {
  const int server = setup_.servers[place];
  if (server == setup_.member) {
    clients_[place] = mapped(make_client(*server_, setup_.member, residuals_));
    return {};
  }
  Options options = setup_.options;
  if (setup_.is_late) options.timeout = std::min(options.timeout, kLatePairs);
  auto pair =
      Pair::form(engine_, store, Pair::kWorker, pair_name(server, setup_.member), server_text(server), options);
  if (!pair.ok()) return pair.status();
  const bool is_near = pair.value()->wire().find(": shm") != std::string::npos;
  clients_[place] =
      make_client(std::move(pair).value(), server_text(server), residuals_, setup_.server.coding.pull);
  if (is_near) clients_[place] = mapped(std::move(clients_[place]));
  ClientCall join;
  join.call.kind = CallKind::kJoin;
  join.body = std::as_bytes(std::span(setup_.server.settings));
  join.deadline = call_deadline();
  Client& client = *clients_[place];
  client.start(join);
  Waiter waiter(engine_->bell());
  while (!join.is_over()) {
    client.poll() ? waiter.moved() : waiter.idle(Clock::now() + kLookUpEvery);
    if (give_up && give_up()) client.fail({Code::kAborted, "the wait was given up"});
  }
  if (!join.status.ok()) clients_[place].reset();  // the server may end now
  return join.status;
}

std::unique_ptr<Client> ParameterService::mapped(std::unique_ptr<Client> messages) {
  if (!setup_.server.is_relaxed()) return messages;
  return make_mapped_client(std::move(messages), extents_, setup_.server.shard_rule(), residuals_);
}

// ---- A server

// Other workers came, or did not: then the beginning fails here and, as the pairs end, with them.
Status ParameterService::await_workers(const GiveUp& give_up) {
  if (!server_ || setup_.is_late) return {};
  const Deadline deadline = call_deadline();
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (!admission_.ok()) return admission_;
    }
    const int here = server_->arrivals(setup_.workers);
    if (Status refused = server_->refusal(); !refused.ok()) return refused;
    if (here == setup_.workers) return {};
    if (Clock::now() > deadline) {
      return {Code::kTimeout,
              "only " + std::to_string(here) + " of " + std::to_string(setup_.workers) + " workers have joined"};
    }
    if (give_up && give_up()) return {Code::kAborted, "the wait for workers was given up"};
    std::this_thread::sleep_for(kGlance);
  }
}

// Settings differ. Stays for a while, so that all workers come and hear of it.
void ParameterService::await_refused() {
  const Deadline until = Clock::now() + kRefusing;
  while (server_ && server_->arrivals(setup_.workers) < setup_.workers && Clock::now() < until) {
    std::this_thread::sleep_for(kGlance);
  }
}

void ParameterService::admit_workers() {
  const Status bad = caught("admitting workers", [&] {
    StoreUntil store(setup_.door_store, [this] { return is_stopping(); });
    for (int worker = 0; worker < setup_.workers && !is_stopping(); ++worker) {
      if (worker == setup_.member) continue;
      if (Status failed = admit(store, worker, setup_.options.timeout); !failed.ok()) {
        const std::lock_guard lock(mutex_);
        if (admission_.ok()) admission_ = failed;
        return;
      }
    }
    admit_late(store);
  });
  if (bad.ok()) return;
  const std::lock_guard lock(mutex_);
  if (admission_.ok()) admission_ = bad;
}

Status ParameterService::admit(Store& store, int worker, milliseconds timeout) {
  Options options = setup_.options;
  options.timeout = timeout;
  auto pair =
      Pair::form(engine_, store, Pair::kServer, pair_name(setup_.member, worker), worker_text(worker), options);
  if (!pair.ok()) return pair.status();
  auto session = std::make_unique<Session>(*server_, worker, std::move(pair).value());
  const std::lock_guard lock(mutex_);
  arrived_.push_back(std::move(session));
  ring(engine_->bell());
  return {};
}

void ParameterService::admit_late(Store& store) {
  for (int k = 0; !is_stopping();) {
    const auto number = store.get(late_key(setup_.name, k), kGlance);
    if (!number.ok()) {
      if (number.status().code() == Code::kAborted) return;
      if (number.status().code() != Code::kTimeout) {
        log(LogLevel::kWarning,
            "parameter service \"" + setup_.name + "\" admits no more workers: its store is gone");
        return;
      }
      const Deadline again = Clock::now() + kLookForLate;
      while (Clock::now() < again && !is_stopping()) std::this_thread::sleep_for(milliseconds(10));
      continue;
    }
    std::this_thread::sleep_for(2 * kSettleTime);  // another worker may take the place from this one
    const auto settled = store.get(late_key(setup_.name, k++), kGlance);
    int worker = -1;
    const std::string& text = settled.ok() ? settled.value() : number.value();
    std::from_chars(text.data(), text.data() + text.size(), worker);
    if (worker < setup_.workers || worker > kMostMembers || worker == setup_.member) continue;
    if (Status failed = admit(store, worker, kLatePairs); !failed.ok()) {
      log(LogLevel::kWarning, "parameter service \"" + setup_.name + "\": " + failed.message());
    } else {
      log(LogLevel::kInfo, "parameter service \"" + setup_.name + "\": " + worker_text(worker) + " has come");
    }
  }
}

}  // namespace braid

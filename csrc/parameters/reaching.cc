// SPDX-License-Identifier: Apache-2.0
// How a worker reaches its servers.
#include <algorithm>
#include <utility>

#include "parameters/list.h"
#include "parameters/service.h"
#include "rendezvous/store_until.h"

namespace braid {

Status ParameterService::reach_servers(const GiveUp& give_up) {
  StoreUntil store(setup_.store, [&] { return give_up && give_up(); });
  if (setup_.is_late) {
    const auto written = write_in_list(setup_.name, store, std::to_string(setup_.member));
    if (!written.ok()) return written.status();
    in_list_ = written.value();
  }
  const auto first = static_cast<int>(setup_.servers.size());
  Status mismatch;
  Status missed;
  const auto go_on_after = [&](int place, Status bad) -> Status {
    if (bad.code() == Code::kMismatch) {  // so that every server hears of it
      mismatch = std::move(bad);
      return {};
    }
    if (bad.ok() || !miss(place, bad)) return bad;
    missed = std::move(bad);
    return {};
  };
  // With a quorum others wait for this worker no longer than their grace period. If it came only when all of them rest,
  // its first round would wait for them (wake_all_if_all_rest()).
  const bool joins_at_once = setup_.server.mode == Mode::kQuorum;
  for (int place = 0; place < first; ++place) {
    Status bad = meet(place, store);
    if (bad.ok() && joins_at_once) bad = join(place, give_up);
    if (bad = go_on_after(place, bad); !bad.ok()) return bad;
  }
  while (setup_.is_late && may_grow(setup_) && read_entry(store, give_up).ok()) {
  }
  // Only now: from its join on, others may wait for this worker, which may have waited for servers that are gone.
  const int met = setup_.is_late ? static_cast<int>(places()) : first;
  for (int place = joins_at_once ? first : 0; place < met; ++place) {
    if (Status bad = go_on_after(place, join(place, give_up)); !bad.ok()) return bad;
  }
  if (!mismatch.ok()) return mismatch;
  const auto is_there = [](const auto& client) { return client != nullptr; };
  return std::any_of(clients_.begin(), clients_.begin() + met, is_there) ? Status() : missed;
}

// A late worker goes on without a server that has ended.
bool ParameterService::miss(int place, const Status& why) {
  const bool is_newcomer = static_cast<size_t>(place) >= setup_.servers.size();
  if (!is_newcomer && !(setup_.is_late && (why.code() == Code::kTimeout || why.code() == Code::kPeerLost))) {
    return false;
  }
  clients_[static_cast<size_t>(place)].reset();
  lost_[static_cast<size_t>(place)].store(true);
  log(LogLevel::kInfo, "parameter service \"" + setup_.name + "\": " + why.message());
  return true;
}

Options ParameterService::options_for(int place) const {
  const bool is_late = setup_.is_late || static_cast<size_t>(place) >= setup_.servers.size();
  Options options = setup_.options;
  if (is_late) options.timeout = std::min(options.timeout, kLatePairs);
  return options;
}

Status ParameterService::meet(int place, Store& store) {
  const int server = server_at(setup_, place);
  auto& client = clients_[static_cast<size_t>(place)];
  if (server == setup_.member) {
    client = mapped(make_client(*server_, setup_.member, residuals_));
    return {};
  }
  if (in_list_ >= 0) {
    if (Status bad = store.set(coming_key(setup_.name, place, in_list_), "1"); !bad.ok()) return bad;
  }
  auto pair = Pair::form(engine_, store, Pair::kWorker, pair_name(server, setup_.member), server_text(server),
                         options_for(place));
  if (!pair.ok()) return pair.status();
  const bool is_near = pair.value()->wire().find(": shm") != std::string::npos;
  const std::string name = server_text(server, who_is(server, store, *pair.value()));
  names_[static_cast<size_t>(place)] = name;
  pair.value()->set_peer(name);
  client = make_client(std::move(pair).value(), name, residuals_, setup_.server.coding.pull);
  if (is_near) client = mapped(std::move(client));
  return {};
}

Status ParameterService::join(int place, const GiveUp& give_up) {
  auto& client = clients_[static_cast<size_t>(place)];
  if (!client) return {};  // it was missed
  if (server_at(setup_, place) != setup_.member) {
    ClientCall call;
    call.call.kind = CallKind::kJoin;
    call.body = std::as_bytes(std::span(setup_.server.settings));
    call.deadline = deadline_after(options_for(place).timeout);
    client->start(call);
    Waiter waiter(engine_->bell());
    while (!call.is_over()) {
      client->poll() ? waiter.moved() : waiter.idle(Clock::now() + kLookUpEvery);
      if (give_up && give_up()) client->fail({Code::kAborted, "the wait was given up"});
    }
    if (!call.status.ok()) {
      client.reset();  // the server may end now
      return call.status;
    }
  }
  client->watch();
  return {};
}

std::unique_ptr<Client> ParameterService::mapped(std::unique_ptr<Client> messages) {
  if (!setup_.server.is_relaxed()) return messages;
  return make_mapped_client(std::move(messages), extents_, setup_.server.shard_rule(), residuals_);
}

}  // namespace braid

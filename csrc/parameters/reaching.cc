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
  bool reaches_one = false;
  Status last;
  Status mismatch;
  for (size_t place = 0; place < setup_.servers.size(); ++place) {
    auto client = reach(static_cast<int>(place), store, give_up);
    reaches_one |= client.ok();
    if (client.ok()) {
      clients_[place] = std::move(client).value();
      clients_[place]->watch();
      continue;
    }
    const Status& bad = client.status();
    if (bad.code() == Code::kMismatch) {  // goes on, so that every server hears of it
      mismatch = bad;
      continue;
    }
    if (!setup_.is_late || bad.code() != Code::kTimeout) return bad;
    last = bad;
    lost_[place].store(true);
  }
  if (!mismatch.ok()) return mismatch;
  while (setup_.is_late && may_grow(setup_) && read_entry(store, give_up).ok()) {
    const auto is_there = [](const auto& client) { return client != nullptr; };
    reaches_one |= std::any_of(clients_.begin(), clients_.end(), is_there);
  }
  return reaches_one ? Status() : last;
}

Result<std::unique_ptr<Client>> ParameterService::reach(int place, Store& store, const GiveUp& give_up) {
  const int server = server_at(setup_, place);
  if (server == setup_.member) return mapped(make_client(*server_, setup_.member, residuals_));
  const bool is_late = setup_.is_late || static_cast<size_t>(place) >= setup_.servers.size();
  Options options = setup_.options;
  if (is_late) options.timeout = std::min(options.timeout, kLatePairs);
  if (in_list_ >= 0) {
    if (Status bad = store.set(coming_key(setup_.name, place, in_list_), "1"); !bad.ok()) return bad;
  }
  auto pair =
      Pair::form(engine_, store, Pair::kWorker, pair_name(server, setup_.member), server_text(server), options);
  if (!pair.ok()) return pair.status();
  const bool is_near = pair.value()->wire().find(": shm") != std::string::npos;
  const std::string name = server_text(server, who_is(server, store, *pair.value()));
  names_[static_cast<size_t>(place)] = name;
  pair.value()->set_peer(name);
  auto client = make_client(std::move(pair).value(), name, residuals_, setup_.server.coding.pull);
  if (is_near) client = mapped(std::move(client));
  ClientCall join;
  join.call.kind = CallKind::kJoin;
  join.body = std::as_bytes(std::span(setup_.server.settings));
  join.deadline = deadline_after(options.timeout);
  client->start(join);
  Waiter waiter(engine_->bell());
  while (!join.is_over()) {
    client->poll() ? waiter.moved() : waiter.idle(Clock::now() + kLookUpEvery);
    if (give_up && give_up()) client->fail({Code::kAborted, "the wait was given up"});
  }
  if (!join.status.ok()) return join.status;  // the server may end now
  return client;
}

std::unique_ptr<Client> ParameterService::mapped(std::unique_ptr<Client> messages) {
  if (!setup_.server.is_relaxed()) return messages;
  return make_mapped_client(std::move(messages), extents_, setup_.server.shard_rule(), residuals_);
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// How a server and its backup find each other: through the list of those that come late (list.h).
#include <cstdio>
#include <utility>

#include "base/log.h"
#include "parameters/list.h"
#include "parameters/service.h"

namespace braid {
namespace {

// How long a server waits for its backup.
constexpr milliseconds kBackupTime{5'000};

}  // namespace

// Where an earlier backup was lost, too.
void ParameterService::register_backup(Store& store) {
  const int backup = copier_->needs_backup();
  if (backup < 0) return;
  const std::string text = std::string(kCopiesEntry) + std::to_string(place_) + " " + std::to_string(backup);
  if (!write_in_list(setup_.name, store, text).ok()) copier_->missed(backup);
}

void ParameterService::form_copies(Store& store, const std::string& text) {
  int from = -1;
  int to = -1;
  if (std::sscanf(text.c_str(), "copies %d %d", &from, &to) != 2) return;
  if (to == place_) {
    if (Status bad = admit(store, source_number(from), kBackupTime); !bad.ok()) {
      log(LogLevel::kInfo, "parameter service \"" + setup_.name + "\": " + bad.message());
    }
  }
  if (from != place_) return;
  auto client = reach_backup(store, to);
  if (client.ok()) return copier_->connect(to, std::move(client).value());
  log(LogLevel::kInfo, "parameter service \"" + setup_.name + "\": " + client.status().message());
  copier_->missed(to);
}

Result<std::unique_ptr<Client>> ParameterService::reach_backup(Store& store, int place) {
  const int server = server_at(setup_, place);
  Options options = setup_.options;
  options.timeout = kBackupTime;
  auto pair = Pair::form(engine_, store, Pair::kWorker, pair_name(server, source_number(place_)),
                         server_text(server), options);
  if (!pair.ok()) return pair.status();
  const std::string name = server_text(server, who_is(server, store, *pair.value()));
  pair.value()->set_peer(name);
  auto client = make_client(std::move(pair).value(), name, residuals_, std::nullopt);
  ClientCall join;
  join.call.kind = CallKind::kJoin;
  join.body = std::as_bytes(std::span(setup_.server.settings));
  join.deadline = Clock::now() + kBackupTime;
  client->start(join);
  while (!join.is_over() && !is_stopping()) {
    if (!client->poll()) std::this_thread::sleep_for(kGlance);
  }
  if (!join.is_over()) client->fail({Code::kAborted, "the parameter service was closed"});
  if (!join.status.ok()) return join.status;
  return client;
}

}  // namespace braid

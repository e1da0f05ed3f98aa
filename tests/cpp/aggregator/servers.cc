// SPDX-License-Identifier: Apache-2.0
#include "aggregator/servers.h"

#include <utility>

#include "aggregator/aggregator.h"
#include "base/caught.h"

namespace braid::testing {
namespace {

Options on_host(Options options, const std::string& host) {
  options.host = host;
  return options;
}

int32_t summand(Node rank, size_t i, int round) {
  return static_cast<int32_t>((i + static_cast<size_t>(31 * rank + round)) % 1009);
}

}  // namespace

Options options_of_hosts() {
  Options options = options_for({"tcp", "tcp", true});
  options.links = "assume";
  return options;
}

Servers::~Servers() { stop_all(); }

void Servers::start() {
  auto server = std::make_unique<Server>();
  const Options options = on_host(options_of_hosts(), "server " + std::to_string(servers_.size()));
  server->thread = std::thread([this, options, stopped = &server->stopped] {
    const ServerCalls calls{[stopped] { return stopped->load(); },
                            [this](const std::string& line) {
                              const std::lock_guard lock(mutex_);
                              said_.push_back(line);
                            }};
    Status over;
    const Status thrown = caught("serving", [&] { over = serve(store_, options, calls); });
    EXPECT_TRUE(forgiving_ || (thrown.ok() && over.ok())) << thrown.message() << over.message();
  });
  servers_.push_back(std::move(server));
}

void Servers::stop(size_t which) {
  servers_[which]->stopped = true;
  if (servers_[which]->thread.joinable()) servers_[which]->thread.join();
}

void Servers::stop_all() {
  for (const auto& server : servers_) server->stopped = true;
  for (size_t i = 0; i < servers_.size(); ++i) stop(i);
}

bool Servers::has_said(const std::string& text) {
  const std::lock_guard lock(mutex_);
  for (const std::string& line : said_) {
    if (line.find(text) != std::string::npos) return true;
  }
  return false;
}

void with_servers(int ranks, int servers, const Options& options, const std::function<void(Scene&)>& body) {
  const auto store = std::make_shared<MemoryStore>();
  Servers all(store);
  for (int i = 0; i < servers; ++i) all.start();
  at_all_places(ranks, options, [&](const Place& place) {
    Place here = place;
    here.options.host = "rank " + std::to_string(place.rank);
    here.options.servers = store;
    here.options.await_servers = servers;
    auto group = here.form("test");
    ASSERT_TRUE(group.ok()) << group.status().message();
    Scene scene{here, std::move(group).value(), all};
    body(scene);
    scene.group->shutdown();
  });
}

Ways ways_of(const Communicator& group) {
  Ways ways;
  for (const OperationStats& row : group.stats()) {
    if (row.collective != "all_reduce") continue;
    (row.algorithm.find("aggregator") != std::string::npos ? ways.through : ways.besides) += row.calls;
  }
  return ways;
}

std::vector<int32_t> summands(Node rank, size_t elements, int round) {
  std::vector<int32_t> values(elements);
  for (size_t i = 0; i < elements; ++i) values[i] = summand(rank, i, round);
  return values;
}

bool is_sum(const std::vector<int32_t>& values, int ranks, int round) {
  for (size_t i = 0; i < values.size(); ++i) {
    int32_t sum = 0;
    for (Node rank = 0; rank < ranks; ++rank) sum += summand(rank, i, round);
    if (values[i] != sum) return false;
  }
  return true;
}

Status sum_right(Communicator& group, size_t elements, int round, bool inline_if_idle) {
  std::vector<int32_t> values = summands(group.rank(), elements, round);
  const Status status = run(group, all_reduce(values, DType::kInt32), inline_if_idle);
  EXPECT_TRUE(!status.ok() || is_sum(values, group.ranks(), round)) << "rank " << group.rank() << ", " << round;
  return status;
}

bool gets_through(Communicator& group, int most) {
  const uint64_t before = ways_of(group).through;
  for (int round = 0; round < most; ++round) {
    const Status status = sum_right(group, kLarge, round);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) return false;
    if (ways_of(group).through > before) return true;
  }
  return false;
}

}  // namespace braid::testing

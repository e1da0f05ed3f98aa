// SPDX-License-Identifier: Apache-2.0
#include "communicator/ranks.h"

#include <thread>
#include <utility>

#include "support/slowness.h"

namespace braid::testing {

const std::vector<Wire>& wires() {
  static const std::vector<Wire> all = {{"shm", "shm", true}, {"ring", "shm", false}, {"tcp", "tcp", true}};
  return all;
}

void PrintTo(const Wire& wire, std::ostream* out) { *out << wire.name; }

std::string wire_name(const ::testing::TestParamInfo<Wire>& info) { return info.param.name; }

Options options_for(const Wire& wire) {
  Options options;
  options.timeout = limit(milliseconds(30'000));
  options.transports = wire.transports;
  options.single_copy = wire.single_copy;
  options.interface = "127.0.0.1";
  return options;
}

void at_all_places(int ranks, const Options& options, const std::function<void(const Place&)>& body) {
  auto store = std::make_shared<MemoryStore>();
  // They last until all ranks are through, as in a process that goes on after a failure: what was still on its way
  // ends with an engine.
  std::vector<std::shared_ptr<Engine>> engines;
  for (Node rank = 0; rank < ranks; ++rank) {
    auto engine = Engine::create(options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engines.push_back(std::move(engine).value());
  }
  std::vector<std::thread> threads;
  for (Node rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { body({rank, ranks, engines[rank], store, options}); });
  }
  for (std::thread& thread : threads) thread.join();
}

void on_all_ranks(int ranks, const Options& options, const std::function<void(Communicator&)>& body) {
  at_all_places(ranks, options, [&](const Place& place) {
    auto group = place.form("test");
    ASSERT_TRUE(group.ok()) << group.status().message();
    body(*group.value());
    group.value()->shutdown();
  });
}

Status outcome(const Result<std::shared_ptr<Work>>& started) {
  if (!started.ok()) return started.status();
  if (started.value() == nullptr) return {};  // Communicator::run() is done already
  return started.value()->wait(deadline_after(milliseconds(60'000)));
}

Status run(Communicator& group, Operation operation, bool inline_if_idle) {
  return outcome(group.start(std::move(operation), inline_if_idle));
}

bool says(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

Operation barrier() { return {CollectiveKind::kBarrier}; }

Operation operation_on(Blocks& blocks, const Collective& collective) {
  return {collective.kind, DType::kUInt32, ReduceOp::kSum, collective.root, blocks.inputs(), blocks.outputs()};
}

}  // namespace braid::testing

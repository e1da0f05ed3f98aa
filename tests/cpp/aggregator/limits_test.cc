// SPDX-License-Identifier: Apache-2.0
// An order for more than any aggregator takes ends that group with a reason, and the aggregator is free for the next.
#include "base/limits.h"

#include "aggregator/aggregated_all_reduce.h"
#include "aggregator/registry.h"
#include "aggregator/servers.h"

namespace braid::testing {
namespace {

std::vector<std::string> await_ticket(Registry& registry) {
  const Deadline until = Clock::now() + milliseconds(20'000);
  while (Clock::now() < until) {
    auto tickets = registry.newcomers();
    if (tickets.ok() && !tickets.value().empty()) return tickets.value();
    std::this_thread::sleep_for(milliseconds(5));
  }
  return {};
}

bool comes_to_say(Servers& servers, const std::string& text) {
  const Deadline until = Clock::now() + milliseconds(20'000);
  while (!servers.has_said(text) && Clock::now() < until) std::this_thread::sleep_for(milliseconds(5));
  return servers.has_said(text);
}

TEST(ServerLimits, AnOrderOfTooMuch) {
  const auto store = std::make_shared<MemoryStore>();
  Servers servers(store);
  servers.start();
  Registry registry(store);
  const auto tickets = await_ticket(registry);
  ASSERT_EQ(tickets.size(), 1u);
  ASSERT_EQ(registry.ask(tickets, Clock::now() + milliseconds(20'000)), tickets);
  Options options = options_of_hosts();
  options.aggregators = 1;
  Appointment place{"aggregated", 1, 1, 0, options.chunk_bytes, options.window, options.links};
  ASSERT_TRUE(registry.appoint(tickets, place).ok());
  auto engine = Engine::create(options);
  ASSERT_TRUE(engine.ok());
  options.host = "first";
  auto group = Communicator::create(engine.value(), store, 0, 2, "aggregated", options);
  ASSERT_TRUE(group.ok()) << group.status().message();
  const auto order =
      to_bytes({static_cast<uint8_t>(CollectiveKind::kAllReduce), static_cast<uint8_t>(DType::kFloat32),
                static_cast<uint8_t>(ReduceOp::kSum), uint64_t{1} << 62, INT64_MAX});
  const Status sent = outcome(group.value()->send(1, kOrderTag, order, milliseconds(20'000)));
  ASSERT_TRUE(sent.ok()) << sent.message();
  EXPECT_TRUE(comes_to_say(servers, "has 4611686018427387904 bytes, more than the 1099511627776 allowed"));
  group.value()->shutdown();
  EXPECT_EQ(await_ticket(registry).size(), 1u);  // it lives, and is free again
}

}  // namespace
}  // namespace braid::testing

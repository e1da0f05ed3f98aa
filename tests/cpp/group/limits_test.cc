// SPDX-License-Identifier: Apache-2.0
// Sizes and counts from another rank, a store, a file or a text that no honest one would state. Each is refused with an
// error that names it, before anything of that size is made.
#include "base/limits.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "aggregator/registry.h"
#include "communicator/ranks.h"
#include "links/control_channel.h"
#include "links/link_benchmark.h"
#include "rendezvous/endpoint_exchange.h"
#include "schedule/text.h"
#include "topology/topology.h"
#include "transport/loopback/loopback.h"

namespace braid::testing {
namespace {

constexpr uint64_t kAbsurd = uint64_t{1} << 60;

// Two ranks of one process, over queues; what the first says is ours to make up.
class Pair : public ::testing::Test {
 protected:
  Pair() {
    for (Node rank = 0; rank < 2; ++rank) {
      boxes_[rank].attach(1 - rank, hub_.channel(rank, 1 - rank, boxes_[rank], bells_[rank]));
    }
  }

  LoopbackHub hub_{2, {}};
  DoorbellWord bells_[2];
  Mailbox boxes_[2]{{0, 2, bells_[0]}, {1, 2, bells_[1]}};
};

TEST_F(Pair, ATextThatNobodyTells) {
  uint64_t size = kAbsurd;
  ControlChannel first(boxes_[0], bells_[0], "a test", Clock::now() + milliseconds(20'000));
  first.next_step();
  ASSERT_TRUE(first.send(1, 0, std::as_bytes(std::span(&size, 1))).ok());
  ControlChannel second(boxes_[1], bells_[1], "a test", Clock::now() + milliseconds(20'000));
  const auto told = second.tell(1, 2, "");
  ASSERT_FALSE(told.ok());
  EXPECT_EQ(told.status().message(),
            "what rank 0 says in a test has 1152921504606846976 bytes, more than the 16777216 allowed");
  EXPECT_EQ(told.status().rank(), 0);
  EXPECT_FALSE(boxes_[1].failure().ok());  // nobody goes on
}

TEST_F(Pair, ATopologyOfOtherRanks) {
  const Deadline deadline = Clock::now() + milliseconds(20'000);
  std::thread first([&] {
    ControlChannel control(boxes_[0], bells_[0], "a test", deadline);
    static_cast<void>(control.tell(0, 2, to_text(Topology({0, 1, 2}, {1e-6, 1e-9}, {1e-5, 1e-8}))));
  });
  const auto learned = benchmark_links(boxes_[1], bells_[1], 1, {0, 1}, {1e-6, 1e-9}, "", deadline);
  first.join();
  ASSERT_FALSE(learned.ok());
  EXPECT_EQ(learned.status().message(), "rank 0 tells of 3 ranks in a group of 2");
}

TEST(Limits, AEndpointThatNobodyHas) {
  MemoryStore store;
  ASSERT_TRUE(store.set("group/card/3", std::string(kMostStoreValueBytes + 1, 'x')).ok());
  const auto endpoint = await(store, "group/", "card", 3, Clock::now() + milliseconds(1000));
  ASSERT_FALSE(endpoint.ok());
  EXPECT_EQ(endpoint.status().message(), "the card of rank 3 has 1048577 bytes, more than the 1048576 allowed");
  EXPECT_EQ(endpoint.status().rank(), 3);
}

TEST(Limits, AnAppointmentToAGroupThatIsTooLarge) {
  const auto store = std::make_shared<MemoryStore>();
  for (const char* const counts : {"2000000000\n1\n0", "4\n2000000000\n0", "2147483647\n2147483647\n2147483646"}) {
    Candidacy candidacy(store);
    ASSERT_TRUE(candidacy.offer().ok());
    const std::string ticket = store->get("braid/servers/slot/0", milliseconds(1)).value();
    ASSERT_TRUE(store->set("braid/servers/ask/" + ticket, "who?").ok());
    ASSERT_TRUE(store->set("braid/servers/place/" + ticket, counts + std::string("\n0\n4\n\ngroup")).ok());
    Appointment place;
    const auto answer = candidacy.await(Clock::now() + milliseconds(1000), &place);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_EQ(answer.value(), Candidacy::Answer::kUnreadable) << counts;
  }
}

TEST(Limits, ATicketThatNoAggregatorLeaves) {
  const auto store = std::make_shared<MemoryStore>();
  ASSERT_TRUE(store->set("braid/servers/slot/0", std::string(10'000'000, 'x')).ok());
  ASSERT_TRUE(store->set("braid/servers/slot/1", "honest").ok());
  EXPECT_EQ(Registry(store).newcomers().value(), std::vector<std::string>({"honest"}));
}

TEST(Limits, CountsInTexts) {
  for (const char* const text :
       {"all_reduce ring ranks=2000000000 chunks=4\n", "all_reduce ring ranks=4 chunks=4000000000\n",
        "all_reduce ring ranks=1000000000 chunks=4\nr0\n"}) {
    const auto schedule = schedule_from_text(text);
    ASSERT_FALSE(schedule.ok());
    EXPECT_FALSE(schedule.status().message().empty());
  }
  EXPECT_EQ(schedule_from_text("all_reduce ring ranks=2000000000 chunks=4\n").status().message(),
            "line 1: expected a number of ranks of at most 1073741824, found \"2000000000\"");
  EXPECT_EQ(topology_from_text("topology hosts=0,4000000000\n").status().message(),
            "line 1: expected a host number of at most 1073741824, found \"4000000000\"");
}

}  // namespace
}  // namespace braid::testing

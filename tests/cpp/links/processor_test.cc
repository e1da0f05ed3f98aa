// SPDX-License-Identifier: Apache-2.0
#include "links/processor.h"

#include <string>
#include <thread>

#include "codec/codec.h"
#include "communicator/ranks.h"
#include "topology/topology.h"
#include "transport/loopback/loopback.h"

namespace braid::testing {
namespace {

TEST(Processor, IsMeasuredForEveryCodec) {
  size_t kinds = 1;
  EXPECT_TRUE(processor_rates().contains("reduce"));
  for (int kind = 0; kind < kCodecKindCount; ++kind) {
    const CodecTraits& row = traits(static_cast<CodecKind>(kind));
    EXPECT_TRUE(processor_rates().contains(row.name)) << kind;
    EXPECT_EQ(processor_rates().contains(std::string(row.name) + "_1000"), row.is_sparse) << kind;
    kinds += row.is_sparse ? 2 : 1;
  }
  EXPECT_EQ(processor_rates().size(), kinds);
  // Slower than memory can be, and faster than any formula under a sanitizer.
  for (const auto& [name, s_per_byte] : processor_rates()) {
    EXPECT_GT(s_per_byte, 1e-12) << name;
    EXPECT_LT(s_per_byte, 1e-6) << name;
  }
  EXPECT_EQ(&processor_rates(), &processor_rates());
}

TEST(Processor, TheSlowestOfEachKindCounts) {
  constexpr int kRanks = 3;
  LoopbackHub hub(kRanks, {});
  std::vector<Topology::Work> told(kRanks);
  std::vector<std::thread> ranks;
  for (Node rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      DoorbellWord bell{};
      Mailbox mailbox(rank, kRanks, bell);
      for (Node peer = 0; peer < kRanks; ++peer) {
        if (peer != rank) mailbox.attach(peer, hub.channel(rank, peer, mailbox, bell));
      }
      ControlChannel control(mailbox, bell, "testing", deadline_after(milliseconds(10'000)));
      const Topology::Work mine = {{"a", rank == 1 ? 0.1 : 1.0 / 3}, {"b", rank}, {"c", -rank}};
      const auto rates = slowest_of_all(control, rank, kRanks, mine);
      ASSERT_TRUE(rates.ok()) << rates.status().message();
      told[static_cast<size_t>(rank)] = rates.value();
      EXPECT_TRUE(control.tell(rank, kRanks, "").ok());  // none leaves before
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const auto& rates : told) EXPECT_EQ(rates, (Topology::Work{{"a", 1.0 / 3}, {"b", 2}, {"c", 0}}));
}

TEST(Processor, IsKnownToAGroupWhoseLinksAreMeasured) {
  Options options = options_for(wires()[2]);
  options.links = "measure";
  std::vector<std::string> texts(3);
  at_all_places(3, options, [&](const Place& place) {
    Place here = place;
    here.options.host = std::to_string(place.rank / 2);
    auto group = here.form("test");
    ASSERT_TRUE(group.ok()) << group.status().message();
    texts[static_cast<size_t>(place.rank)] = group.value()->topology_text();
    group.value()->shutdown();
  });
  EXPECT_EQ(texts[1], texts[0]);
  EXPECT_EQ(texts[2], texts[0]);
  const auto topology = topology_from_text(texts[0]);
  ASSERT_TRUE(topology.ok()) << topology.status().message();
  EXPECT_EQ(topology.value().work(), processor_rates());
}

TEST(Processor, IsNotAskedForWhereLinksAreAssumed) {
  Options options = options_for(wires()[2]);
  options.links = "assume";
  at_all_places(2, options, [&](const Place& place) {
    Place here = place;
    here.options.host = std::to_string(place.rank);
    auto group = here.form("test");
    ASSERT_TRUE(group.ok()) << group.status().message();
    EXPECT_EQ(group.value()->topology_text().find("work"), std::string::npos);
    group.value()->shutdown();
  });
}

}  // namespace
}  // namespace braid::testing

// SPDX-License-Identifier: Apache-2.0
#include "topology/topology.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(Topology, StockShapes) {
  Topology flat = uniform(3, 1e-5, 1e-9);
  EXPECT_EQ(flat.nodes(), 3);
  EXPECT_NE(flat.host(0), flat.host(2));
  EXPECT_EQ(flat.link(0, 2), (Link{1e-5, 1e-9}));
  Topology shared = one_host(4);
  EXPECT_EQ(shared.host(0), shared.host(3));
  EXPECT_EQ(shared.link(1, 2), shared.within_host());
}

TEST(Topology, LinksFollowHosts) {
  Topology topology({0, 0, 1}, {1, 2}, {3, 4});
  EXPECT_EQ(topology.link(0, 1), (Link{1, 2}));
  EXPECT_EQ(topology.link(0, 2), (Link{3, 4}));
}

TEST(Topology, EachWayOfALinkIsItsOwn) {
  Topology topology = uniform(3, 1, 2);
  topology.set_link(0, 1, {5, 6});
  EXPECT_EQ(topology.link(0, 1), (Link{5, 6}));
  EXPECT_EQ(topology.link(1, 0), (Link{1, 2}));
  topology.set_link(0, 1, {1, 2});
  EXPECT_EQ(topology, uniform(3, 1, 2));
}

TEST(Topology, ACardIsAllLinksOfANode) {
  Topology topology = uniform(3, 1, 2);
  topology.set_card(2, {1, 8});
  EXPECT_EQ(topology.special_links().size(), 4u);
  EXPECT_EQ(topology.link(0, 2), (Link{1, 8}));
  EXPECT_EQ(topology.link(2, 1), (Link{1, 8}));
  EXPECT_EQ(topology.link(0, 1), (Link{1, 2}));
}

TEST(TopologyText, RoundTrips) {
  Topology odd({4, 4, 0, 1}, {0.1, 1.0 / 3}, {2e-5, 8e-9});
  odd.set_link(3, 0, {1e-300, 0});
  for (const Topology& topology : {uniform(1, 0, 0), one_host(64), odd}) {
    Result<Topology> again = topology_from_text(to_text(topology));
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again.value(), topology);
  }
}

TEST(TopologyText, IsWhatTheHeaderShows) {
  Topology topology({0, 0, 1}, {5e-7, 1e-10}, {2e-5, 8e-9});
  topology.set_link(0, 2, {2e-5, 4e-8});
  EXPECT_EQ(to_text(topology),
            "topology hosts=0,0,1\n"
            "within alpha_s=5e-07 beta_s_per_byte=1e-10\n"
            "between alpha_s=2e-05 beta_s_per_byte=8e-09\n"
            "link 0 -> 2 alpha_s=2e-05 beta_s_per_byte=4e-08\n");
}

TEST(TopologyText, ErrorsNameTheLine) {
  const std::string head = "topology hosts=0,1\nwithin alpha_s=0 beta_s_per_byte=0\n";
  const std::string three = head + "between alpha_s=1 beta_s_per_byte=1\n";
  const std::pair<std::string, std::string> wrong[] = {
      {"", "line 1: expected topology, within and between lines"},
      {head, "line 3: expected topology, within and between lines"},
      {"topology nodes=2", "line 1: expected \"hosts=\""},
      {"topology hosts=0,x", "line 1: expected a host number, found \"x\""},
      {"topology hosts=99999999999", "a host number of at most"},
      {head + "between alpha_s=-1 beta_s_per_byte=1", "line 3: expected seconds, found \"-1\""},
      {head + "between alpha_s=nan beta_s_per_byte=1", "line 3: expected seconds, found \"nan\""},
      {head + "between alpha_s=1 beta_s_per_byte=1e999", "line 3: expected seconds per byte"},
      {three + "link 0 -> 2 alpha_s=1 beta_s_per_byte=1", "line 4: expected a node number of at most 1"},
      {three + "link 1 -> 1 alpha_s=1 beta_s_per_byte=1", "line 4: expected two different nodes"},
      {three + "wire 0", "line 4: expected \"link\", found \"wire\""},
      {three + "link 0 -> 1 alpha_s=1 beta_s_per_byte=1 more", "line 4: expected the end of the line"}};
  for (const auto& [text, words] : wrong) {
    Status status = topology_from_text(text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(words), std::string::npos) << text << "\n  gives " << status.message();
  }
}

}  // namespace
}  // namespace braid

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

TEST(Topology, NumbersHostsByFirstAppearance) {
  const Topology topology({7, 2, 7, 5, 2, 7}, {}, {});
  EXPECT_EQ(topology.host_count(), 3);
  EXPECT_EQ(topology.numbered_hosts(), (std::vector<int>{0, 1, 0, 2, 1, 0}));
  EXPECT_EQ(topology.host_sizes(), (std::vector<int>{3, 2, 1}));
}

TEST(Topology, ALinkIsAsSlowAsTheSlowerNic) {
  Topology topology({0, 0, 1, 2}, {1, 2}, {3, 4});
  EXPECT_EQ(topology.nic(1), (Topology::Nic{4, 4}));
  topology.set_nic(1, {8, 5});
  topology.set_nic(2, {6, 1});
  EXPECT_EQ(topology.nic(1), (Topology::Nic{8, 5}));
  EXPECT_EQ(topology.link(0, 1), (Link{1, 2}));
  EXPECT_EQ(topology.link(0, 2), (Link{3, 5}));  // into host 1
  EXPECT_EQ(topology.link(2, 1), (Link{3, 8}));  // out of it
  EXPECT_EQ(topology.link(3, 2), (Link{3, 6}));
  EXPECT_EQ(topology.link(0, 3), (Link{3, 4}));  // a fast NIC does not make the other one faster
  EXPECT_TRUE(topology.special_links().empty());
}

TEST(Topology, ANicLikeTheOthersIsNotSpecial) {
  Topology topology = uniform(3, 1, 2);
  topology.set_nic(2, {8, 8});
  EXPECT_NE(topology, uniform(3, 1, 2));
  topology.set_nic(2, {2, 2});
  EXPECT_EQ(topology, uniform(3, 1, 2));
  topology.set_link(0, 2, {1, 9});
  topology.set_nic(2, {2, 9});
  EXPECT_TRUE(topology.special_links().empty());  // as the NIC now says, too
}

TEST(Topology, ALinkOfItsOwnWinsOverTheNics) {
  Topology topology = uniform(3, 1, 2);
  topology.set_nic(0, {4, 4});
  topology.set_link(0, 1, {9, 3});
  EXPECT_EQ(topology.link(0, 1), (Link{9, 3}));
  EXPECT_EQ(topology.link(1, 0), (Link{1, 4}));
}

TEST(TopologyText, RoundTrips) {
  Topology odd({4, 4, 0, 1}, {0.1, 1.0 / 3}, {2e-5, 8e-9});
  odd.set_nic(4, {1.0 / 7, 0});
  odd.set_nic(1, {8e-9, 3e-9});
  odd.set_link(3, 0, {1e-300, 0});
  odd.set_burst_bytes(0.1);
  odd.set_work("fp8_e4m3", 0.1);
  odd.set_work("reduce", 0);
  for (const Topology& topology : {uniform(1, 0, 0), one_host(64), odd}) {
    Result<Topology> again = topology_from_text(to_text(topology));
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again.value(), topology);
  }
}

TEST(TopologyText, IsWhatTheHeaderShows) {
  Topology topology({0, 0, 1}, {5e-7, 1e-10}, {2e-5, 8e-9});
  topology.set_burst_bytes(4096);
  topology.set_work("int8", 1.5e-10);
  topology.set_nic(1, {4e-8, 8e-9});
  topology.set_link(0, 2, {2e-5, 4e-7});
  EXPECT_EQ(to_text(topology),
            "topology hosts=0,0,1\n"
            "within alpha_s=5e-07 beta_s_per_byte=1e-10\n"
            "between alpha_s=2e-05 beta_s_per_byte=8e-09\n"
            "burst bytes=4096\n"
            "work int8 s_per_byte=1.5e-10\n"
            "card 1 up_s_per_byte=4e-08 down_s_per_byte=8e-09\n"
            "link 0 -> 2 alpha_s=2e-05 beta_s_per_byte=4e-07\n");
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
      {three + "card 2 up_s_per_byte=1 down_s_per_byte=1",
       "line 4: expected a host that the first line names, found \"2\""},
      {three + "card x", "line 4: expected a host number, found \"x\""},
      {three + "card 1 down_s_per_byte=1", "line 4: expected \"up_s_per_byte=\""},
      {three + "card 1 up_s_per_byte=-1 down_s_per_byte=1", "line 4: expected seconds per byte, found \"-1\""},
      {three + "card 1 up_s_per_byte=1 down_s_per_byte=inf", "line 4: expected seconds per byte, found \"inf\""},
      {three + "link 0 -> 1 alpha_s=1 beta_s_per_byte=1\ncard 1 up_s_per_byte=1 down_s_per_byte=1",
       "line 5: expected \"link\", found \"card\""},
      {three + "burst 1", "line 4: expected \"bytes=\""},
      {three + "burst bytes=-1", "line 4: expected bytes, found \"-1\""},
      {three + "work int8 s_per_byte=1\nburst bytes=1", "line 5: expected \"link\", found \"burst\""},
      {three + "work", "line 4: expected a kind of work"},
      {three + "work int8 1", "line 4: expected \"s_per_byte=\""},
      {three + "work int8 s_per_byte=-1", "line 4: expected seconds per byte, found \"-1\""},
      {three + "card 1 up_s_per_byte=1 down_s_per_byte=1\nwork int8 s_per_byte=1",
       "line 5: expected \"link\", found \"work\""},
      {three + "wire 0", "line 4: expected \"link\", found \"wire\""},
      {three + "link 0 -> 1 alpha_s=1 beta_s_per_byte=1 more", "line 4: expected the end of the line"}};
  for (const auto& [text, words] : wrong) {
    Status status = topology_from_text(text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(words), std::string::npos) << text << "\n  gives " << status.message();
  }
}

TEST(Topology, KnowsWorkByName) {
  Topology topology = one_host(2);
  EXPECT_EQ(topology.work_s_per_byte("int8", 7), 7);
  topology.set_work("int8", 2);
  topology.set_work("int8", 3);
  EXPECT_EQ(topology.work_s_per_byte("int8", 7), 3);
  EXPECT_EQ(topology.work_s_per_byte("int", 7), 7);
  EXPECT_EQ(topology.first(1).work_s_per_byte("int8", 7), 3);
  EXPECT_NE(topology, one_host(2));
}

TEST(Topology, SeemsFasterToSmallerMessages) {
  Topology topology({4, 4, 7}, {1, 2}, {3, 4});
  topology.set_nic(7, {8, 16});
  topology.set_link(0, 2, {9, 64});
  topology.set_link(0, 1, {9, 64});
  Topology half({4, 4, 7}, {1, 2}, {3, 2});
  half.set_nic(7, {4, 8});
  half.set_link(0, 2, {9, 32});
  half.set_link(0, 1, {9, 64});  // inside a host messages are as they were
  for (Topology* one : {&topology, &half}) one->set_work("int8", 3);
  topology.set_burst_bytes(4096);
  half.set_burst_bytes(8192);
  EXPECT_EQ(topology.with_messages_of(0.5), half);
  EXPECT_EQ(topology.with_messages_of(1), topology);
}

TEST(Topology, HasAFirstPart) {
  Topology topology({4, 4, 7, 9}, {1, 2}, {3, 4});
  topology.set_nic(7, {5, 6});
  topology.set_nic(9, {7, 8});
  topology.set_link(0, 2, {9, 9});
  topology.set_link(3, 0, {9, 9});
  Topology part({4, 4, 7}, {1, 2}, {3, 4});
  part.set_nic(7, {5, 6});
  part.set_link(0, 2, {9, 9});
  EXPECT_EQ(topology.first(3), part);
  EXPECT_EQ(topology.first(4), topology);
}

}  // namespace
}  // namespace braid

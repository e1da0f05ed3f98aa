// SPDX-License-Identifier: Apache-2.0
// Groups take the links that a file states, on all ranks alike, and say so where ranks state something else.
#include "options/stated_links.h"

#include <string>
#include <utility>
#include <vector>

#include "communicator/ranks.h"

namespace braid::testing {
namespace {

constexpr Link kStatedBetween{1e-4, 8e-9};

StatedLinks stated(double up_s_per_byte, double down_s_per_byte) {
  return {"", "d1", kStatedBetween, {up_s_per_byte, down_s_per_byte}};
}

// The ranks of hosts a, a and b, each with what it was told.
void on_hosts(const std::vector<StatedLinks>& links,
              const std::function<void(Result<std::shared_ptr<Communicator>>)>& check) {
  at_all_places(3, options_for({"all", "shm,tcp", true}), [&](const Place& place) {
    Place here = place;
    here.options.host = place.rank < 2 ? "a" : "b";
    here.options.links = "net.toml";
    here.options.stated = links[static_cast<size_t>(place.rank)];
    check(here.form("test"));
  });
}

TEST(StatedLinks, AreTheTopologyOfAllRanks) {
  on_hosts({stated(8e-9, 8e-9), stated(8e-9, 8e-9), stated(4e-8, 1e-8)}, [](const auto& group) {
    ASSERT_TRUE(group.ok()) << group.status().message();
    const auto topology = topology_from_text(group.value()->topology_text());
    ASSERT_TRUE(topology.ok());
    EXPECT_EQ(topology.value().numbered_hosts(), std::vector<int>({0, 0, 1}));
    EXPECT_EQ(topology.value().between_hosts(), kStatedBetween);
    EXPECT_EQ(topology.value().nic(0), (Topology::Nic{8e-9, 8e-9}));
    EXPECT_EQ(topology.value().nic(1), (Topology::Nic{4e-8, 1e-8}));
    std::vector<float> values(1000, 1.0f);
    const Status status = run(*group.value(), all_reduce(values));
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(values, std::vector<float>(1000, 3.0f));
    group.value()->shutdown();
  });
}

TEST(StatedLinks, OtherFilesAreNamedOnAllRanks) {
  StatedLinks other = stated(8e-9, 8e-9);
  other.digest = "d2";
  on_hosts({stated(8e-9, 8e-9), stated(8e-9, 8e-9), other}, [](const auto& group) {
    ASSERT_FALSE(group.ok());
    EXPECT_EQ(group.status().code(), Code::kMismatch) << group.status().message();
    EXPECT_TRUE(says(group.status(), "BRAID_LINKS differs")) << group.status().message();
    EXPECT_TRUE(says(group.status(), "a file with the digest d2")) << group.status().message();
  });
}

TEST(StatedLinks, AFileThatOneRankCannotReadIsToldToAll) {
  StatedLinks none;
  none.problem = "net.toml: no such file";
  on_hosts({stated(8e-9, 8e-9), none, stated(8e-9, 8e-9)}, [](const auto& group) {
    ASSERT_FALSE(group.ok());
    EXPECT_EQ(group.status().code(), Code::kMismatch) << group.status().message();
    EXPECT_TRUE(says(group.status(), "rank 1 has")) << group.status().message();
    EXPECT_TRUE(says(group.status(), "net.toml: no such file")) << group.status().message();
  });
  on_hosts({none, none, none}, [](const auto& group) {
    ASSERT_FALSE(group.ok());
    EXPECT_EQ(group.status().code(), Code::kInvalidArgument) << group.status().message();
    EXPECT_TRUE(says(group.status(), "net.toml: no such file")) << group.status().message();
  });
}

TEST(StatedLinks, RanksOfOneHostThatSayOtherThingsAreNamed) {
  on_hosts({stated(8e-9, 8e-9), stated(8e-9, 9e-9), stated(8e-9, 8e-9)}, [](const auto& group) {
    ASSERT_FALSE(group.ok());
    EXPECT_EQ(group.status().code(), Code::kMismatch) << group.status().message();
    EXPECT_TRUE(says(group.status(), "ranks 0 and 1 are on one host")) << group.status().message();
  });
}

TEST(StatedLinks, AFileThatNobodyHasReadIsRefused) {
  Options options = options_for(wires()[0]);
  options.links = "net.toml";
  at_all_places(2, options, [](const Place& place) {
    const auto group = place.form("test");
    ASSERT_FALSE(group.ok());
    EXPECT_EQ(group.status().code(), Code::kInvalidArgument) << group.status().message();
    EXPECT_TRUE(says(group.status(), "BRAID_LINKS=net.toml")) << group.status().message();
  });
}

TEST(StatedLinks, NicsRoundTrip) {
  const Topology::Nic nic{4e-8, 1.0 / 3};
  const auto read = nic_from_text(to_text(nic));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value(), nic);
  for (const char* wrong :
       {"", "up_s_per_byte=1", "up_s_per_byte=-1 down_s_per_byte=1", "up_s_per_byte=1 down_s_per_byte=1 x"}) {
    EXPECT_FALSE(nic_from_text(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace braid::testing

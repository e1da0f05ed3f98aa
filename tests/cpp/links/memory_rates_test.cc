// SPDX-License-Identifier: Apache-2.0
#include "links/memory_rates.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "communicator/ranks.h"

namespace braid::testing {
namespace {

TEST(MemoryRates, AreThoseOfMemory) {
  const Topology::Work& rates = memory_rates();
  ASSERT_TRUE(rates.contains("touch"));
  // A terabyte per second is more than a core can, 20 megabytes less than one does under a sanitizer.
  EXPECT_GT(rates.at("touch"), 1e-12);
  EXPECT_LT(rates.at("touch"), 5e-8);
#if defined(__SSE2__)
  EXPECT_GT(rates.at("fetch"), 0);
  EXPECT_LT(rates.at("fetch"), 5e-8);
#endif
  EXPECT_EQ(&rates, &memory_rates()) << "measured once";
}

TEST(MemoryRates, ComeBackFromTheirText) {
  for (const Topology::Work& rates : {memory_rates(), Topology::Work{{"touch", 1.0 / 3e11}}, Topology::Work()}) {
    const auto read = memory_from_text(memory_text(rates));
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read.value(), rates);
  }
  for (const char* text : {"touch", "touch=", "=1e-11", "=", "reduce=1e-11", "touch=1e-11s", "touch=0",
                           "touch=-1e-11", "touch=1", "touch=nan", "touch=inf", "touch=1e-11 fetch"}) {
    const auto read = memory_from_text(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), Code::kMismatch);
  }
}

TEST(MemoryRates, OfRanksHaveAMedian) {
  using Work = Topology::Work;
  const Work slow{{"touch", 9}, {"fetch", 2}}, fast{{"touch", 1}, {"fetch", 3}}, usual{{"touch", 2}, {"fetch", 7}};
  EXPECT_EQ(median_of({slow, fast, usual}), (Work{{"touch", 2}, {"fetch", 3}}));
  EXPECT_EQ(median_of({slow, fast}), (Work{{"touch", 9}, {"fetch", 3}}));
  EXPECT_EQ(median_of({slow, {{"touch", 1}}}), Work()) << "one rank has no \"fetch\"";
  EXPECT_EQ(median_of({slow, {}}), Work());
  EXPECT_EQ(median_of({}), Work());
}

// What the ranks of a group on one host know of it: the same text on all.
std::vector<std::string> texts_of(const Options& options) {
  std::vector<std::string> texts(3);
  on_all_ranks(3, options,
               [&](Communicator& group) { texts[static_cast<size_t>(group.rank())] = group.topology_text(); });
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
  return texts;
}

TEST(MemoryRates, AreKnownToAGroupWithBoards) {
  Options options = options_for(wires()[0]);
  options.links = "";
  EXPECT_NE(texts_of(options)[0].find("\nwork touch s_per_byte="), std::string::npos);
  options.links = "assume";
  EXPECT_EQ(texts_of(options)[0].find("work"), std::string::npos);
}

}  // namespace
}  // namespace braid::testing

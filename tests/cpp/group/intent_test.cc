// SPDX-License-Identifier: Apache-2.0
// The intent of an operation: other plans and other operations must have other intents.
#include "group/intent.h"

#include <gtest/gtest.h>

#include <set>

#include "group/route.h"
#include "support/every_family.h"

namespace braid::testing {
namespace {

TEST(IntentOf, TellsPlansApart) {
  const Collective collective{CollectiveKind::kAllReduce, 4, 0};
  std::set<uint64_t> plans;
  size_t routes = 0;
  for (const char* family : {"ring", "direct"}) {
    Route route;
    route.schedule = planned(*find_family(collective.kind, family), collective);
    for (route.chunk_bytes = 64; route.chunk_bytes <= 64 * 2000; route.chunk_bytes += 64) {
      plans.insert(intent_for(Operation(), route).plan);
      ++routes;
    }
  }
  EXPECT_EQ(plans.size(), routes);
}

TEST(IntentOf, TellsHugeSizesApart) {
  const Collective collective{CollectiveKind::kAllReduce, 4, 0};
  Route route;
  route.schedule = planned(*find_family(collective.kind, "ring"), collective);
  Operation one, other;
  one.kind = other.kind = collective.kind;
  one.bytes = kMostIntentBytes + 8;
  other.bytes = one.bytes + 8;
  EXPECT_EQ(intent_for(one, route).bytes, kMostIntentBytes);
  EXPECT_EQ(intent_for(other, route).bytes, kMostIntentBytes);
  EXPECT_NE(intent_for(one, route), intent_for(other, route));
  EXPECT_EQ(intent_for(one, route), intent_for(one, route));
}

TEST(IntentOf, HasTheRootOrTheCodec) {
  const Collective collective{CollectiveKind::kBroadcast, 4, 0};
  Route route;
  route.schedule = planned(*find_family(collective.kind, "binomial"), collective);
  Operation operation;
  operation.kind = collective.kind;
  operation.root = 3;
  EXPECT_EQ(intent_for(operation, route).root, 3u);
  EXPECT_EQ(intent_for(operation, route).codec, 0u);
  operation.kind = CollectiveKind::kAllReduce;
  operation.lossy = Lossy{{CodecKind::kInt8}, nullptr};
  EXPECT_EQ(intent_for(operation, route).root, 0u);
  EXPECT_EQ(name_of_codec(intent_for(operation, route).codec), "int8");
}

}  // namespace
}  // namespace braid::testing

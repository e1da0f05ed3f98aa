// SPDX-License-Identifier: Apache-2.0
// The signature of an operation: other plans and other operations must have other signatures.
#include "group/signature.h"

#include <gtest/gtest.h>

#include <set>

#include "group/route.h"
#include "support/every_algorithm.h"

namespace braid::testing {
namespace {

TEST(SignatureOf, TellsPlansApart) {
  const Collective collective{CollectiveKind::kAllReduce, 4, 0};
  std::set<uint64_t> plans;
  size_t routes = 0;
  for (const char* algorithm : {"ring", "direct"}) {
    Route route;
    route.schedule = planned(*find_algorithm(collective.kind, algorithm), collective);
    for (route.chunk_bytes = 64; route.chunk_bytes <= 64 * 2000; route.chunk_bytes += 64) {
      plans.insert(signature_for(Operation(), route).plan_digest);
      ++routes;
    }
  }
  EXPECT_EQ(plans.size(), routes);
}

TEST(SignatureOf, TellsHugeSizesApart) {
  const Collective collective{CollectiveKind::kAllReduce, 4, 0};
  Route route;
  route.schedule = planned(*find_algorithm(collective.kind, "ring"), collective);
  Operation one, other;
  one.kind = other.kind = collective.kind;
  one.bytes = kMostSignatureBytes + 8;
  other.bytes = one.bytes + 8;
  EXPECT_EQ(signature_for(one, route).bytes, kMostSignatureBytes);
  EXPECT_EQ(signature_for(other, route).bytes, kMostSignatureBytes);
  EXPECT_NE(signature_for(one, route), signature_for(other, route));
  EXPECT_EQ(signature_for(one, route), signature_for(one, route));
}

TEST(SignatureOf, HasTheRootOrTheCodec) {
  const Collective collective{CollectiveKind::kBroadcast, 4, 0};
  Route route;
  route.schedule = planned(*find_algorithm(collective.kind, "binomial"), collective);
  Operation operation;
  operation.kind = collective.kind;
  operation.root = 3;
  EXPECT_EQ(signature_for(operation, route).root, 3u);
  EXPECT_EQ(signature_for(operation, route).codec, 0u);
  operation.kind = CollectiveKind::kAllReduce;
  operation.lossy = Lossy{{CodecKind::kInt8}, nullptr};
  EXPECT_EQ(signature_for(operation, route).root, 0u);
  EXPECT_EQ(name_of_codec(signature_for(operation, route).codec), "int8");
}

}  // namespace
}  // namespace braid::testing

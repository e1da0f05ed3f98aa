// SPDX-License-Identifier: Apache-2.0
// The text of an endpoint: what is written is read, and nothing else.
#include "rendezvous/endpoint.h"

#include <gtest/gtest.h>

namespace braid::testing {
namespace {

RankEndpoint example() {
  RankEndpoint endpoint;
  endpoint.settings = "wire format";
  endpoint.host = "boot ipc";
  endpoint.nonce = "0123";
  endpoint.wires = {{"shm", "braid-shm-4 a=b"}, {"tcp", "127.0.0.1:4711"}, {"twine_2", "x"}};
  return endpoint;
}

TEST(EndpointText, ComesBackTheSame) {
  for (RankEndpoint endpoint : {example(), RankEndpoint()}) {
    const auto read = endpoint_from_text(to_text(endpoint));
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read.value(), endpoint);
  }
  EXPECT_EQ(example().offer("tcp"), "127.0.0.1:4711");
  EXPECT_EQ(example().offer("mpi"), "");
}

TEST(EndpointText, RefusesOtherTexts) {
  const std::string fields = to_text(RankEndpoint());
  for (const char* wires :
       {"wire tcp=\n", "wire =x\n", "wire tcp\n", "tcp=x\n", "wire TCP=x\n", "\n", "wire a b=x\n",
        "wire tcp=x\nwire shm=x\n", "wire tcp=x\nwire tcp=x\n", "wire tcp=x\n\n"}) {
    const auto read = endpoint_from_text(fields + wires);
    ASSERT_FALSE(read.ok()) << wires;
    EXPECT_EQ(read.status().code(), Code::kMismatch);
    EXPECT_NE(read.status().message().find("wire NAME=OFFER"), std::string::npos) << read.status().message();
  }
}

// As version 6 wrote it.
TEST(EndpointText, OfAnOlderVersionIsRefusedAsSuch) {
  const auto read = endpoint_from_text(
      "settings=wire format "
      "6\nhost=h\ncores=0\nshm=braid-shm-4\ntcp=127.0.0.1:4711\nnonce=0\nrates=\nplace=p\nsecret=s\n");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().code(), Code::kMismatch);
  EXPECT_NE(read.status().message().find("it may run another braid version"), std::string::npos);
}

}  // namespace
}  // namespace braid::testing

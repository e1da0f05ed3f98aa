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
  endpoint.memory = "fetch=4e-11 touch=1.2e-11";
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

TEST(SharedSettings, NameTheOneThatDiffers) {
  Options mine;
  Options other;
  EXPECT_EQ(difference_of(shared_settings(mine), shared_settings(other), 1, 0), "");
  other.window = 8;
  EXPECT_EQ(difference_of(shared_settings(mine), shared_settings(other), 1, 0),
            "BRAID_WINDOW differs: rank 1 has \"4\", rank 0 has \"8\": give all ranks the same");
  other = {};
  other.algorithm = "all_reduce=ring,broadcast=direct";
  EXPECT_EQ(difference_of(shared_settings(mine), shared_settings(other), 2, 0),
            "BRAID_ALGORITHM differs: rank 2 has none, rank 0 has \"all_reduce=ring,broadcast=direct\": give all "
            "ranks the same");
}

TEST(SharedSettings, IncludeThoseThatTheCoreDoesNotRead) {
  Options mine;
  Options other;
  mine.also_equal = "BRAID_BALANCE=\tBRAID_COMPRESSION=int8\t";
  other.also_equal = "BRAID_BALANCE=\tBRAID_COMPRESSION=\t";
  EXPECT_EQ(difference_of(shared_settings(mine), shared_settings(other), 0, 3),
            "BRAID_COMPRESSION differs: rank 0 has \"int8\", rank 3 has none: give all ranks the same");
  other.also_equal = "";
  EXPECT_NE(difference_of(shared_settings(mine), shared_settings(other), 0, 3), "");
}

}  // namespace
}  // namespace braid::testing

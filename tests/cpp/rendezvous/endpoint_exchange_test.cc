// SPDX-License-Identifier: Apache-2.0
// Ranks that cannot form a group: all of them hear why, also if the store ends with rank 0.
#include "rendezvous/endpoint_exchange.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "support/memory_store.h"
#include "support/slowness.h"

namespace braid::testing {
namespace {

// Notes which keys its rank has waited for.
class NotedStore final : public Store {
 public:
  explicit NotedStore(Store& store) : store_(store) {}
  Status set(const std::string& key, const std::string& value) override { return store_.set(key, value); }
  Result<std::string> get(const std::string& key, milliseconds timeout) override {
    auto value = store_.get(key, timeout);
    if (value.ok()) got.insert(key);
    return value;
  }

  std::set<std::string> got;

 private:
  Store& store_;
};

TEST(EndpointExchange, TheFirstRankEndsLastIfSettingsDiffer) {
  constexpr int kRanks = 3;
  MemoryStore shared;
  std::vector<NotedStore> stores(kRanks, NotedStore(shared));
  std::vector<Status> found(kRanks);
  std::vector<std::thread> threads;
  for (Node rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      RankEndpoint mine;
      mine.settings = rank == 1 ? "wire=tcp" : "wire=shm";
      mine.host = "here";
      const auto place = static_cast<size_t>(rank);
      const auto set =
          exchange_endpoints(stores[place], "/", rank, kRanks, mine, deadline_after(limit(milliseconds(20'000))),
                             [](const std::vector<RankEndpoint>&) { return Status(); });
      found[place] = set.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : found) EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_TRUE(stores[0].got.contains("/heard/1"));
  EXPECT_TRUE(stores[0].got.contains("/heard/2"));
}

}  // namespace
}  // namespace braid::testing

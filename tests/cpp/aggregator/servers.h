// SPDX-License-Identifier: Apache-2.0
// Aggregators as threads of the test, and groups of ranks, each on a host of its own, that they may join.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "communicator/ranks.h"

namespace braid::testing {

// TCP on the loopback interface, links as they are assumed to be.
Options options_of_hosts();

class Servers {
 public:
  explicit Servers(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  ~Servers();  // stops them

  // One more, which serves until it is stopped.
  void start();
  // Each returns once it has left.
  void stop(size_t which);
  void stop_all();
  // From now on they may end with an error.
  void forgive() { forgiving_ = true; }
  // Whether the line has been said by any of them.
  bool has_said(const std::string& text);

 private:
  struct Server {
    std::atomic<bool> stopped{false};
    std::thread thread;
  };
  const std::shared_ptr<Store> store_;
  std::atomic<bool> forgiving_{false};
  std::vector<std::unique_ptr<Server>> servers_;
  std::mutex mutex_;
  std::vector<std::string> said_;
};

struct Scene {
  Place place;
  std::shared_ptr<Communicator> group;  // that the servers may join
  Servers& servers;
};
// Runs body on one thread per rank, in a group that `servers` have joined; more may come.
void with_servers(int ranks, int servers, const Options& options, const std::function<void(Scene&)>& body);

// How many all_reduces of the group went through aggregators, and how many did not.
struct Ways {
  uint64_t through = 0;
  uint64_t besides = 0;
};
Ways ways_of(const Communicator& group);

// What a rank gives to a sum, and whether this is the sum; `round` tells sums apart.
std::vector<int32_t> summands(Node rank, size_t elements, int round);
bool is_sum(const std::vector<int32_t>& values, int ranks, int round);
// Such a sum, in place; the test fails where it is wrong.
Status sum_right(Communicator& group, size_t elements, int round, bool inline_if_idle = true);

// Elements of four bytes that go through aggregators, if there are two of these and three ranks.
inline constexpr size_t kLarge = size_t{4} << 20;
// Large sums until one goes through aggregators, on all ranks the same one, or until `most` have not.
bool gets_through(Communicator& group, int most);

}  // namespace braid::testing

// SPDX-License-Identifier: Apache-2.0
// One contract suite for every wire. A transport's test file makes a TestGroup of real mailboxes joined by its
// channels and instantiates TransportContract with a factory for it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/mailbox.h"

namespace braid::testing {

class TestGroup {
 public:
  virtual ~TestGroup() = default;
  virtual Mailbox& mailbox(Node rank) = 0;
  virtual DoorbellWord& bell(Node rank) = 0;
};

struct Wire {
  std::string name;
  std::function<std::unique_ptr<TestGroup>(int ranks)> make;
};

class TransportContract : public ::testing::TestWithParam<Wire> {
 protected:
  std::unique_ptr<TestGroup> make(int ranks) { return GetParam().make(ranks); }
};

// `bytes` of a pattern that depends on the seed.
std::vector<std::byte> pattern(size_t bytes, uint64_t seed);

// Polls the rank's mailbox until the request is done or 20 s have passed; its outcome.
Status wait(TestGroup& group, Node rank, Request& request);

// Runs body(rank) on one thread per rank.
void on_all_ranks(int ranks, const std::function<void(Node)>& body);

inline std::string wire_name(const ::testing::TestParamInfo<Wire>& info) { return info.param.name; }

}  // namespace braid::testing

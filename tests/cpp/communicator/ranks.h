// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: each with its own engine, all with one store.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "communicator/communicator.h"
#include "support/blocks.h"
#include "support/memory_store.h"

namespace braid::testing {

struct Wire {
  std::string name;
  std::string transports;
  bool single_copy = true;
};
// Shared memory read in place, shared memory copied through a ring, TCP on the loopback interface.
const std::vector<Wire>& wires();
void PrintTo(const Wire& wire, std::ostream* out);
std::string wire_name(const ::testing::TestParamInfo<Wire>& info);
Options options_for(const Wire& wire);

// One rank's place: what it needs to form groups.
struct Place {
  Node rank = 0;
  int ranks = 1;
  std::shared_ptr<Engine> engine;
  std::shared_ptr<Store> store;
  Options options;

  Result<std::shared_ptr<Communicator>> form(const std::string& name) const {
    return Communicator::create(engine, store, rank, ranks, name, options);
  }
};

// Runs body on one thread per rank, with an engine made for these options.
void at_all_places(int ranks, const Options& options, const std::function<void(const Place&)>& body);
// The same, with a group already formed, which is shut down afterwards.
void on_all_ranks(int ranks, const Options& options, const std::function<void(Communicator&)>& body);

// Starts the operation and waits for it; the first thing that goes wrong.
Status run(Communicator& group, Operation operation, bool inline_if_idle = true);
Status outcome(const Result<std::shared_ptr<Work>>& started);

// Whether its message holds the text.
bool says(const Status& status, const std::string& text);

Operation barrier();
// An in-place sum, or another reduction.
template <class T>
Operation all_reduce(std::vector<T>& values, DType dtype, ReduceOp op = ReduceOp::kSum) {
  const Bytes bytes = std::as_writable_bytes(std::span(values));
  return {CollectiveKind::kAllReduce, dtype, op, 0, {bytes}, {bytes}};
}
inline Operation all_reduce(std::vector<float>& values) { return all_reduce(values, DType::kFloat32); }
Operation operation_on(Blocks& blocks, const Collective& collective);

// Each test of a suite derived from this runs over every wire.
class EveryWire : public ::testing::TestWithParam<Wire> {
 protected:
  Options options() const { return options_for(GetParam()); }
};

}  // namespace braid::testing

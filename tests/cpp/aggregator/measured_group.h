// SPDX-License-Identifier: Apache-2.0
// An aggregator group without ranks or aggregators: it does as the test says, and keeps what it was asked.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/aggregator_group.h"

namespace braid::testing {

class FakeGroup final : public MeasuredGroup {
 public:
  std::optional<double> predicts_s;
  SeenRates passes;
  milliseconds timeout{-1};
  std::atomic<int> started{0};
  std::atomic<int> shut_down{0};
  std::string aborted;

  Node rank() const override { return 0; }
  int ranks() const override { return 1; }
  const std::string& name() const override { return name_; }
  bool is_on_several_hosts() const override { return true; }
  Result<std::shared_ptr<Work>> start(Operation, bool) override { return refuse(); }
  Result<std::shared_ptr<Work>> run(Operation) override { return refuse(); }
  Result<std::shared_ptr<Work>> send(Node, uint32_t, ConstBytes, milliseconds) override { return refuse(); }
  Result<std::shared_ptr<Work>> recv(Node, uint32_t, Bytes, milliseconds) override { return refuse(); }
  void set_timeout(milliseconds given) override { timeout = given; }
  uint64_t sequence() const override { return 0; }
  void abort(const std::string& reason) override { aborted = reason; }
  void shutdown(const GiveUp&) override { ++shut_down; }
  Status failure() const override { return {}; }
  std::vector<OperationStats> stats() const override { return {}; }
  Waits waits() const override { return {}; }
  Result<Explanation> explain(CollectiveKind, DType, ReduceOp, Node, int64_t,
                              const std::optional<Codec>&) override {
    return Explanation{};
  }
  std::string topology_text() const override { return ""; }
  std::vector<std::string> describe_wires() const override { return {}; }
  std::optional<double> predicted_s(DType, ReduceOp, int64_t) override { return predicts_s; }
  SeenRates seen_rates() override { return passes; }

 private:
  Status refuse() {
    ++started;
    return {Code::kPeerLost, "an aggregator is gone"};
  }

  const std::string name_ = "fake";
};

}  // namespace braid::testing

// SPDX-License-Identifier: Apache-2.0
// Which algorithm carries an operation.
#include <utility>

#include "communicator/checks.h"
#include "communicator/group.h"

namespace braid {
namespace {

// Until links are measured: two ordinary classes, memory of one host and a gigabit network. Equal on all ranks, so
// all choose alike.
constexpr Link kWithinHost{2e-6, 1.5e-10};
constexpr Link kBetweenHosts{5e-5, 8e-9};

// Above this size a receiver that reads the sender's memory itself is faster than two that copy through a stage.
constexpr int64_t kLargestOnBoards = int64_t{8} << 20;

}  // namespace

Status Group::make_tuner() {
  TunerOptions tuner;
  tuner.algorithm = options_.algorithm;
  auto made = Tuner::create(Topology(wires_.hosts, kWithinHost, kBetweenHosts), std::move(tuner));
  if (!made.ok()) return made.status().within("BRAID_ALGORITHM");
  tuner_ = std::move(made).value();
  return {};
}

Result<SharedSchedule> Group::schedule_for(const Operation& operation) {
  const Collective collective{operation.kind, ranks_, has_root(operation.kind) ? operation.root : 0};
  auto choice = tuner_->choose(collective, operation.dtype, operation.op, agreed_bytes(operation));
  if (!choice.ok()) return choice.status();
  return choice.value()->schedule;
}

const SharedPlan* Group::shared_plan_locked(const Operation& operation, const VerifiedSchedule& schedule) {
  if (!wires_.board || agreed_bytes(operation) > kLargestOnBoards) return nullptr;
  const auto [found, is_new] = shared_plans_.try_emplace(&schedule);
  if (is_new) found->second = plan_shared(schedule, wires_.board->stage_bytes());
  return found->second.possible ? &found->second : nullptr;
}

Result<Explanation> Group::explain(CollectiveKind kind, DType dtype, ReduceOp op, Node root, int64_t bytes) {
  if (bytes < 0) return Status(Code::kInvalidArgument, std::to_string(bytes) + " bytes: a size is never negative");
  const bool reduces = is_reduction(kind) && kind != CollectiveKind::kBarrier;
  if (reduces && !is_defined(dtype, op)) return Status(Code::kInvalidArgument, undefined_text(dtype, op));
  if (kind == CollectiveKind::kBarrier) bytes = 0;
  const Collective collective{kind, ranks_, has_root(kind) ? root : 0};
  const auto made = tuner_->explain(collective, dtype, op, is_size_agreed(kind) ? bytes : 0, bytes);
  if (!made.ok()) return made.status();
  const Choice& choice = made.value();
  return Explanation{std::string(name_of(kind)), choice.family, choice.predicted_s, choice.runners_up,
                     choice.reason};
}

}  // namespace braid

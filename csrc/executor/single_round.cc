// SPDX-License-Identifier: Apache-2.0
#include "executor/single_round.h"

#include <algorithm>

#include "base/copy.h"
#include "base/pause.h"
#include "reduce/reduce.h"

namespace braid {

bool SingleRound::is_of(const Schedule& schedule) {
  return std::all_of(schedule.programs.begin(), schedule.programs.end(),
                     [](const Program& program) { return program.size() <= 1 && !uses_scratch(program); });
}

std::optional<SingleRound> SingleRound::lay_out(const std::shared_ptr<const VerifiedSchedule>& schedule,
                                                const BoardPlan& plan, Node node, const Operands& operands) {
  if (!is_of(schedule->schedule())) return std::nullopt;
  const Program& program = schedule->schedule().programs[static_cast<size_t>(node)];
  const Layout layout(schedule->schedule(), operands, plan.chunk_bytes, plan.lend_from);
  if (layout.segments() != 1 || program.empty()) return std::nullopt;

  SingleRound round;
  round.dtype_ = operands.dtype;
  round.op_ = operands.op;
  const auto part_of = [&](const Ref& ref) {
    const bool of_input = ref.buffer == Buffer::kInput;
    const ConstBytes bytes = layout.read(ref, 0, nullptr);
    const size_t block = is_vector(schedule->schedule().collective.kind) ? 0 : static_cast<size_t>(ref.first);
    const ConstBytes whole = of_input ? operands.inputs[block] : ConstBytes(operands.outputs[block]);
    return Part{of_input, block, static_cast<size_t>(bytes.data() - whole.data()), bytes.size()};
  };
  const auto await = [&](Node from, size_t bytes) {
    const auto ahead = std::count_if(round.incoming_.begin(), round.incoming_.end(),
                                     [&](const Incoming& earlier) { return earlier.from == from; });
    round.incoming_.push_back({from, static_cast<size_t>(ahead), bytes});
    return static_cast<int>(round.incoming_.size()) - 1;
  };
  std::vector<Action> computed;
  for (size_t i = 0; i < program[0].size(); ++i) {
    const Step& step = program[0][i];
    const Part target = part_of(step.target);
    if (target.bytes == 0) continue;
    if (step.op == Op::kSend) {
      round.send(target, step.peer);
    } else if (step.op == Op::kRecv) {
      round.actions_.push_back({target, {{await(step.peer, target.bytes), {}}}});
    } else {
      const bool averages =
          step.op == Op::kReduce && operands.op == ReduceOp::kAvg && schedule->facts(node, 0, i).completes;
      Action action{target, {}, averages ? schedule->schedule().collective.ranks : 1};
      for (const Source& source : step.sources) {
        const int message = source.is_remote() ? await(source.from, target.bytes) : -1;
        action.sources.push_back({message, source.is_remote() ? Part{} : part_of(source.ref)});
      }
      computed.push_back(std::move(action));
    }
  }
  round.actions_.insert(round.actions_.end(), computed.begin(), computed.end());
  return round;
}

void SingleRound::send(const Part& part, Node to) {
  const auto counted =
      std::find_if(notices_.begin(), notices_.end(), [&](const auto& notices) { return notices.first == to; });
  if (counted == notices_.end()) {
    notices_.emplace_back(to, 1);
  } else {
    ++counted->second;
  }
  auto parcel =
      std::find_if(parcels_.begin(), parcels_.end(), [&](const Parcel& known) { return known.part == part; });
  if (parcel == parcels_.end()) parcel = parcels_.insert(parcel, Parcel{part});
  outgoing_.push_back({to, static_cast<size_t>(parcel - parcels_.begin())});
}

const std::byte* SingleRound::begin_of(const Part& part, const Memory& memory) {
  const std::byte* block = part.of_input ? memory.inputs[part.block].data() : memory.outputs[part.block].data();
  return block + part.offset;
}

bool SingleRound::post(const Memory& memory, shm::Board& board, uint64_t digest) {
  for (const auto& [to, count] : notices_) {
    if (!board.has_room(to, count)) return false;
  }
  board.begin_round();
  for (Parcel& parcel : parcels_) {
    parcel.place = shm::kInline;
    if (parcel.part.bytes <= shm::kInlineBytes) continue;
    const auto place = board.bounce({begin_of(parcel.part, memory), parcel.part.bytes});
    if (!place) return false;
    parcel.place = *place;
  }
  for (const Outgoing& message : outgoing_) {
    const Parcel& parcel = parcels_[message.parcel];
    board.post(message.to, digest, {begin_of(parcel.part, memory), parcel.part.bytes}, parcel.place);
  }
  board.wake();
  return true;
}

bool SingleRound::complete(const Memory& memory, shm::Board& board, uint64_t digest, int looks) {
  for (Incoming& message : incoming_) {
    while (!board.has_come(message.from, message.ahead)) {
      if (--looks < 0) return false;
      pause_briefly();
    }
    const auto posted = board.open(message.from, message.ahead, digest, message.bytes);
    if (!posted.ok() || posted.value().here == nullptr) return false;
    message.here = posted.value().here;
  }
  for (const Action& action : actions_) {
    sources_.clear();
    for (const Addend& source : action.sources) {
      const bool is_message = source.message >= 0;
      sources_.push_back(is_message ? incoming_[static_cast<size_t>(source.message)].here
                                    : begin_of(source.part, memory));
    }
    std::byte* target = memory.outputs[action.target.block].data() + action.target.offset;
    if (sources_.size() > 1) {
      reduce(dtype_, op_, target, sources_, action.target.bytes / size_of(dtype_), action.divisor);
    } else if (target != sources_[0]) {
      copy_bytes(target, sources_[0], action.target.bytes);
    }
  }
  for (const Incoming& message : incoming_) board.take(message.from, 1);
  board.wake();
  return true;
}

}  // namespace braid

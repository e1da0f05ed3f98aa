// SPDX-License-Identifier: Apache-2.0
// A schedule of one round, run in one segment, laid out once for operands of given sizes. Small operations are mostly
// the same again and again; what a SharedExecution works out each time would take most of theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "executor/layout.h"
#include "executor/shared_plan.h"
#include "transport/shm/board.h"
#include "verify/verify.h"

namespace braid {

// Not thread safe.
class SingleRound {
 public:
  // Whether the schedule has one round, on all nodes, and needs no scratch memory.
  static bool is_of(const Schedule& schedule);
  // None where there are several segments, or the schedule is not one of these.
  // REQUIRES: a possible plan of this schedule; operands that match its collective on `node`, too small to be lent.
  static std::optional<SingleRound> lay_out(const std::shared_ptr<const VerifiedSchedule>& schedule,
                                            const SharedPlan& plan, Node node, const Operands& operands);

  // The memory of one run. REQUIRES below: as many blocks as lay_out() was given, each of the same size.
  struct Memory {
    const std::vector<ConstBytes>& inputs;
    const std::vector<Bytes>& outputs;
  };

  // Posts what this node sends. False, and nothing is posted, when there is no room.
  bool post(const Memory& memory, shm::Board& board, uint64_t digest);
  // Looks for what the peers send, `looks` times at most, and completes the operation when all of it is there. False
  // when it is not, or is not as it must be: a SharedExecution that has posted goes on, and says what is wrong.
  bool complete(const Memory& memory, shm::Board& board, uint64_t digest, int looks);

 private:
  struct Part {
    bool of_input = false;
    size_t block = 0;
    size_t offset = 0;
    size_t bytes = 0;

    bool operator==(const Part&) const = default;
  };
  struct Parcel {  // a part that some peers are sent
    Part part;
    uint32_t place = 0;  // on the board, while post() runs
  };
  struct Outgoing {
    Node to = -1;
    size_t parcel = 0;
  };
  struct Incoming {
    Node from = -1;
    size_t ahead = 0;  // messages of the same sender that come before it
    size_t bytes = 0;
    const std::byte* here = nullptr;  // while complete() runs
  };
  struct Addend {
    int message = -1;  // or a part of this node's
    Part part;
  };
  struct Action {
    Part target;
    std::vector<Addend> sources;  // one: copied
    int divisor = 1;
  };

  void send(const Part& part, Node to);
  static const std::byte* begin_of(const Part& part, const Memory& memory);

  DType dtype_ = DType::kUInt8;
  ReduceOp op_ = ReduceOp::kSum;
  std::vector<Parcel> parcels_;
  std::vector<Outgoing> outgoing_;                // in the order of the steps
  std::vector<std::pair<Node, size_t>> notices_;  // how many for each peer
  std::vector<Incoming> incoming_;
  std::vector<Action> actions_;  // what lands first, then what is computed, as the round means it
  std::vector<const std::byte*> sources_;
};

}  // namespace braid

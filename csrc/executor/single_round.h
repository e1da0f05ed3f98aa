// SPDX-License-Identifier: Apache-2.0
// A schedule of one round, run in one segment, laid out once for operands of given sizes. Small operations often
// repeat. A BoardExecution would spend most of their time on a layout that does not change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "executor/board_plan.h"
#include "executor/layout.h"
#include "transport/shm/board.h"
#include "verify/verify.h"

namespace braid {

// Not thread safe.
class SingleRound {
 public:
  // True if the schedule has at most one round on every node and needs no scratch memory.
  static bool is_of(const Schedule& schedule);
  // None unless is_of(schedule), the operands are one segment, and this node has something to do.
  // REQUIRES: a possible plan of this schedule; operands that match its collective on `node`, too small to be lent.
  static std::optional<SingleRound> lay_out(const std::shared_ptr<const VerifiedSchedule>& schedule,
                                            const BoardPlan& plan, Node node, const Operands& operands);

  // The memory of one run. REQUIRES for post() and complete(): the same number and sizes of blocks as in
  // lay_out().
  struct Memory {
    const std::vector<ConstBytes>& inputs;
    const std::vector<Bytes>& outputs;
  };

  // Posts the messages of this node. If the board has no room, posts nothing and returns false.
  bool post(const Memory& memory, shm::Board& board, uint64_t digest);
  // Looks for the messages of the peers, `looks` times at most. Completes the operation if all of them are there.
  // False if a message is missing or wrong: then a BoardExecution with `has_posted` goes on, and names the error.
  bool complete(const Memory& memory, shm::Board& board, uint64_t digest, int looks);

 private:
  struct Part {
    bool of_input = false;
    size_t block = 0;
    size_t offset = 0;
    size_t bytes = 0;

    bool operator==(const Part&) const = default;
  };
  struct Parcel {  // a part that is sent to one or more peers
    Part part;
    uint32_t place = 0;  // on the board; valid while post() runs
  };
  struct Outgoing {
    Node to = -1;
    size_t parcel = 0;
  };
  struct Incoming {
    Node from = -1;
    size_t ahead = 0;  // how many messages of the same sender come before it
    size_t bytes = 0;
    const std::byte* here = nullptr;  // valid while complete() runs
  };
  struct Addend {
    int message = -1;  // index in incoming_; -1: `part` of this node's memory
    Part part;
  };
  struct Action {
    Part target;
    std::vector<Addend> sources;  // a single source is copied
    int divisor = 1;
  };

  void send(const Part& part, Node to);
  static const std::byte* begin_of(const Part& part, const Memory& memory);

  DType dtype_ = DType::kUInt8;
  ReduceOp op_ = ReduceOp::kSum;
  std::vector<Parcel> parcels_;
  std::vector<Outgoing> outgoing_;                // in the order of the steps
  std::vector<std::pair<Node, size_t>> notices_;  // number of notices for each peer
  std::vector<Incoming> incoming_;
  std::vector<Action> actions_;  // first received messages, then local steps: the order within a round
  std::vector<const std::byte*> sources_;
};

}  // namespace braid

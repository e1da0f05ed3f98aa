// SPDX-License-Identifier: Apache-2.0
// Runs one node's part of a verified schedule over boards, if all nodes share memory. Never blocks: its owner
// calls advance() until it is done.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/board_plan.h"
#include "executor/layout.h"
#include "memory/pool.h"
#include "transport/shm/board.h"
#include "verify/verify.h"

namespace braid {

// Working memory of a run. It is reused by the next run, so that small operations need not allocate it again.
struct BoardWorkspace {
  struct Awaited {  // a message that the current round needs
    const Step* step = nullptr;
    Node from = -1;
    size_t ahead = 0;
    shm::Posted posted;
  };
  struct Bounced {
    Ref ref;
    uint32_t place = 0;
  };
  std::vector<Bounced> bounced;
  std::vector<Awaited> awaited;
  std::vector<const std::byte*> sources;
};

// Not thread safe. The operands' memory, the board, the pool and the workspace must outlive it. Once it is done,
// no peer reads the operands' memory. After an early destruction this holds if the group's channels were closed
// before.
class BoardExecution {
 public:
  // `digest` identifies the operation: ranks with different digests run different operations. `has_posted`: a
  // SingleRound has already posted the messages of this node.
  // REQUIRES: a possible plan of this schedule; operands that match the schedule's collective on `node`.
  BoardExecution(std::shared_ptr<const VerifiedSchedule> schedule, const BoardPlan& plan, Node node,
                 Operands operands, shm::Board& board, uint64_t digest, Pool& pool, BoardWorkspace& workspace,
                 bool has_posted = false);
  BoardExecution(const BoardExecution&) = delete;
  BoardExecution& operator=(const BoardExecution&) = delete;

  // Moves what can move. Returns true when the operation is done or has failed.
  bool advance();
  // True if the last advance() moved anything.
  bool moved() const { return moved_; }
  // REQUIRES: advance() returned true.
  const Status& status() const { return status_; }

  // As in Execution.
  std::string waiting_for(size_t most) const;
  std::vector<Node> waiting_peers() const;
  std::string missing_with(Node peer) const;

 private:
  using Awaited = BoardWorkspace::Awaited;
  using Bounced = BoardWorkspace::Bounced;

  bool lends() const { return plan_.lend_from != Layout::kNever; }
  // True once no peer reads the operands' memory.
  bool settled() const;
  // The current turn runs one round of each segment in [oldest(), newest()].
  int64_t oldest() const;
  int64_t newest() const;
  const Round& round_of(int64_t segment) const;
  size_t round_index(int64_t segment) const { return static_cast<size_t>(turn_ - segment * plan_.stride); }
  // True if the turn cannot go on because inputs of this rank have not arrived.
  bool lacks_input() const { return posting_ && round_index(segment_) == 0 && !layout_.has_input(segment_); }
  bool post_turn();
  bool post(const Step& step);
  bool receive_turn();
  void await_round();
  bool collect();
  // Copies lent messages, a part at a time. False until all of them are copied.
  bool read_lent();
  void run_round();
  void copy(Bytes target, const std::byte* source) const;
  void run_reduce(const Step& step, size_t index, size_t& next_message);
  std::byte* scratch_of(int64_t segment) const;

  const std::shared_ptr<const VerifiedSchedule> verified_;
  const BoardPlan& plan_;
  const Node node_;
  const Program& program_;
  const Operands operands_;
  const Layout layout_;
  shm::Board& board_;
  const uint64_t digest_;
  std::vector<PoolBlock> scratch_;

  int64_t turn_ = 0;
  int64_t turns_ = 0;
  bool posting_;           // posts messages; if false, receives them
  int64_t segment_ = 0;    // the segment of the turn that is being posted or received
  size_t step_ = 0;        // the next step of its round to post
  bool awaiting_ = false;  // awaited_ lists the messages of the segment's round
  bool moved_ = false;
  bool lent_ = false;      // at least one message was lent
  size_t read_ = 0;        // the first messages of awaited_ that need no more reading
  size_t read_bytes_ = 0;  // bytes of the next message that are read
  // Copies bypass the cache: all ranks together write more than it holds, and have not just read that memory.
  bool streams_ = false;
  std::vector<Bounced>& bounced_;
  std::vector<Awaited>& awaited_;
  size_t collected_ = 0;  // the first messages of awaited_ that have come
  std::vector<const std::byte*>& sources_;
  Status status_;
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// Runs one node's part of a verified schedule over a mailbox: the only code that moves bytes for a collective.
// Never blocks; whoever owns it calls advance() until it is done.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/coding.h"
#include "executor/layout.h"
#include "memory/pool.h"
#include "transport/mailbox.h"
#include "verify/verify.h"

namespace braid {

struct ExecutionOptions {
  size_t chunk_bytes = 256 * 1024;  // aimed size of a chunk of one segment; a multiple of 64, equal on all ranks
  int window = 4;                   // segments in flight
  std::vector<int> hosts;           // a number per node; looked at by what is lossy alone
};

// Not thread safe. The operands' memory, the mailbox and the pool must outlive it. After a failed advance(), or
// before an early end, the mailbox must have failed or closed: only then are no messages left that use the memory.
class Execution {
 public:
  // REQUIRES: operands that match the schedule's collective on `node` (the communicator checks them); what Coding
  // requires of those that are lossy.
  Execution(std::shared_ptr<const VerifiedSchedule> schedule, Node node, Operands operands, Mailbox& mailbox,
            uint64_t stream, Pool& pool, const ExecutionOptions& options);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // Moves what can move. True when the operation is done or has failed.
  bool advance();
  // REQUIRES: advance() returned true. A failure names the step, in the words of the schedule's text form.
  const Status& status() const { return status_; }

  // What is being waited for: "recv o2 <- r2 (round 1)" per step, at most `most`; and from whom.
  std::string waiting_for(size_t most) const;
  std::vector<Node> waiting_peers() const;
  // What of the messages with a peer is open: "3 of 8 messages with it are open (no message was announced)".
  std::string missing_with(Node peer) const;

 private:
  struct Pending {
    Request request;
    const Step* step = nullptr;
    Node peer = -1;
  };
  struct Lane {  // one segment in flight
    int64_t segment = -1;
    size_t round = 0;
    size_t posted = 0;    // messages of this round
    size_t finished = 0;  // of them, the leading ones known to be done
    std::unique_ptr<Pending[]> pending;
    PoolBlock scratch;
    PoolBlock landing;
    PoolBlock messages;  // what is coded
    CodedSegment coded;
    bool active() const { return segment >= 0; }
  };

  bool advance_lane(Lane& lane);  // true when it moved
  void start_segment(Lane& lane);
  void post_round(Lane& lane);
  void post_receive(Lane& lane, const Step& step, Node from, int32_t message, Bytes into);
  Status collect(Lane& lane, bool& complete);
  Status run_local_steps(Lane& lane);
  Status run_reduce(Lane& lane, const Step& step, size_t index, size_t& landing_offset);
  bool is_coded(Node peer) const { return coding_ && coding_->is_coded(peer); }
  Tag tag(const Lane& lane, int32_t message) const;
  void reserve_memory();

  const std::shared_ptr<const VerifiedSchedule> verified_;
  const Node node_;
  const Program& program_;
  const Operands operands_;
  const Layout layout_;
  std::optional<Coding> coding_;
  Mailbox& mailbox_;
  const uint64_t stream_;
  Pool& pool_;

  std::vector<Lane> lanes_;
  int64_t next_segment_ = 0;
  int64_t segments_left_ = 0;
  std::vector<const std::byte*> sources_;  // reused by run_reduce
  Status status_;
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// Runs one node's part of a verified schedule over a mailbox. Never blocks: its owner calls advance() until it is
// done.
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
  size_t chunk_bytes = 256 * 1024;  // target size of a chunk of one segment; a multiple of 64, equal on all ranks
  int window = 4;                   // segments in flight
  std::vector<int> hosts;           // the host number of each node; used by lossy operations only
};

// Not thread safe. The operands' memory, the mailbox and the pool must outlive it. If advance() failed or did not
// reach the end, fail or close the mailbox before destroying this object: until then messages use its memory.
class Execution {
 public:
  // REQUIRES: operands that match the schedule's collective on `node` (the communicator checks them). Lossy
  // operands must also meet what Coding requires.
  Execution(std::shared_ptr<const VerifiedSchedule> schedule, Node node, Operands operands, Mailbox& mailbox,
            uint64_t stream, Pool& pool, const ExecutionOptions& options);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // Moves what can move. Returns true when the operation is done or has failed.
  bool advance();
  // REQUIRES: advance() returned true. A failure names the step in the schedule's text form.
  const Status& status() const { return status_; }

  // The steps that wait, at most `most` of them, each as "recv o2 <- r2 (round 1)".
  std::string waiting_for(size_t most) const;
  // The peers that these steps wait for.
  std::vector<Node> waiting_peers() const;
  // The open messages with a peer: "3 of 8 messages with it are open (no message was announced)". "" if none is.
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
    size_t finished = 0;  // the first messages of this round that are known to be done
    std::unique_ptr<Pending[]> pending;
    PoolBlock scratch;
    PoolBlock landing;
    PoolBlock messages;  // encoded messages
    CodedSegment coded;
    bool active() const { return segment >= 0; }
  };

  bool advance_lane(Lane& lane);  // true if the lane moved
  // Leaves the lane idle if no segment is left, or if the inputs of the next one have not arrived.
  void start_segment(Lane& lane);
  bool can_start() const { return next_segment_ < layout_.segments() && layout_.has_input(next_segment_); }
  void tell_settled() const;
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

// SPDX-License-Identifier: Apache-2.0
// A group of ranks: ordered collectives and point-to-point messages on plain memory. The c10d adapter and the
// array API are thin layers over it.
//
// Thread safety: all functions may be called from any thread, but all ranks must start a group's collectives in
// the same order. A failed communicator stays failed: every later call reports the first failure. Wrong arguments
// (kInvalidArgument) are refused before anything moves. After such a refusal the group still works.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/feed.h"
#include "base/interruptible_wait.h"
#include "base/span.h"
#include "base/store.h"
#include "codec/lossy.h"
#include "communicator/explanation.h"
#include "communicator/work.h"
#include "engine/engine.h"
#include "options/options.h"
#include "schedule/collective.h"

namespace braid {

// One collective call on this rank. REQUIRES: all memory stays valid until the work is done.
//
// Vector collectives (all_reduce, broadcast, reduce) take one input and one output block. Block collectives take
// one block per rank where docs/schedule.md says that the node has them (all_gather: 1 input, `ranks` outputs;
// ...). A barrier ignores all blocks. A block may be empty.
//
// Blocks of an all_to_all may differ in size, if sender and receiver agree. Blocks of all_gather, gather, scatter
// and reduce_scatter may differ in size, if all ranks give the same sizes. csrc/schedule/schedule.h says when
// input and output may be the same memory. They must not overlap otherwise.
struct Operation {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  Node root = 0;
  std::vector<ConstBytes> inputs;
  std::vector<Bytes> outputs;
  size_t bytes = 0;  // size of the vector on an aggregator, which has no blocks
  // Set for an all_reduce or reduce_scatter that may lose precision: a sum or an average of float32, float16 or
  // bfloat16. Nothing is lost if all ranks are on one host. The sequence number is mixed into the seed, so the
  // same seed may be given each time.
  std::optional<Lossy> lossy = std::nullopt;
  milliseconds timeout{0};  // 0: the group's timeout
  // After this time in the calling thread, the operation is handed to the progress thread; 0: never. It is made
  // for callers that must do other things now and then: Python must handle signals.
  milliseconds inline_for{0};
  // Set if the inputs come while the operation runs: it reads what has arrived, and tells what is settled. It must
  // stay valid until the work is done. Not for lossy operations.
  Feed* feed = nullptr;
};

// Counters of one group and collective, by algorithm; messages are "send" and "recv".
struct OperationStats {
  std::string collective;
  std::string algorithm;
  uint64_t calls = 0;
  uint64_t bytes = 0;      // total size of all operations
  uint64_t min_bytes = 0;  // smallest and largest operation
  uint64_t max_bytes = 0;
  double seconds = 0;  // total duration
  // Percentiles of the duration, correct to 6 %, and the longest duration.
  double p50_s = 0;
  double p95_s = 0;
  double p99_s = 0;
  double max_s = 0;
};

// An operation that has waited for a second or more.
struct Wait {
  std::string operation;
  double seconds = 0;
  std::vector<Node> ranks;  // the ranks it waits for directly, if known
};

struct Waits {
  std::vector<Wait> now;  // current waits, the longest first
  uint64_t notices = 0;   // number of lines logged about waits
  double longest_s = 0;   // longest wait so far, of a second or more; current waits count
};

// Calls visit(name, value) for each field, in the order of display.
template <class Visit>
void for_each_field(const OperationStats& stats, Visit&& visit) {
  visit("collective", stats.collective);
  visit("algorithm", stats.algorithm);
  visit("calls", stats.calls);
  visit("bytes", stats.bytes);
  visit("min_bytes", stats.min_bytes);
  visit("max_bytes", stats.max_bytes);
  visit("seconds", stats.seconds);
  visit("p50_s", stats.p50_s);
  visit("p95_s", stats.p95_s);
  visit("p99_s", stats.p99_s);
  visit("max_s", stats.max_s);
}

class Communicator {
 public:
  // Finds the other ranks through the store. Blocks until all ranks are there, at most options.timeout. `name`
  // identifies the group in the store.
  static Result<std::shared_ptr<Communicator>> create(std::shared_ptr<Engine> engine, std::shared_ptr<Store> store,
                                                      Node rank, int ranks, const std::string& name,
                                                      const Options& options);
  virtual ~Communicator() = default;

  virtual Node rank() const = 0;
  virtual int ranks() const = 0;
  virtual const std::string& name() const = 0;
  // True if the ranks are on more than one host. If false, nothing is ever encoded.
  virtual bool is_on_several_hosts() const = 0;

  // Starts a collective. With `inline_if_idle` and nothing queued, the calling thread carries it before start()
  // returns, for operation.inline_for at most. Otherwise the progress thread carries it.
  virtual Result<std::shared_ptr<Work>> start(Operation operation, bool inline_if_idle) = 0;

  // As start() with `inline_if_idle`, for callers that wait; cheaper. Returns null when the operation is done, its
  // error when it has failed, or else the work to wait for.
  virtual Result<std::shared_ptr<Work>> run(Operation operation) = 0;

  // Point-to-point. Messages between the same two ranks with the same tag arrive in the order sent. Different tags
  // and pairs are independent. Sender and receiver must give the same size. With kAnyNode, recv() takes the first
  // message of the tag that arrives and that no earlier receive takes. Then the work knows its source.
  virtual Result<std::shared_ptr<Work>> send(Node to, uint32_t tag, ConstBytes bytes, milliseconds timeout) = 0;
  virtual Result<std::shared_ptr<Work>> recv(Node from, uint32_t tag, Bytes bytes, milliseconds timeout) = 0;

  virtual void set_timeout(milliseconds timeout) = 0;
  // Sequence number of the last collective started.
  virtual uint64_t sequence() const = 0;
  // Fails all current and later operations: here at once, and soon on all ranks.
  virtual void abort(const std::string& reason) = 0;
  // Waits a few seconds for started operations, fails the rest, and leaves. Idempotent. `give_up` ends the wait
  // early.
  virtual void shutdown(const GiveUp& give_up = {}) = 0;
  virtual Status failure() const = 0;

  virtual std::vector<OperationStats> stats() const = 0;
  virtual Waits waits() const = 0;
  // Which algorithm would carry an operation of `bytes`, and why. `bytes`: the size of the vector, or of all blocks
  // together on a rank that has them all. Asks no other rank, starts nothing, and works in a failed group.
  //
  // The algorithm is exactly the one that start() takes. It is chosen for the next power of two of `bytes`. It is
  // chosen for the smallest size if ranks may not know each other's sizes (all_to_all, gather, scatter). The
  // reason has the times of that size, but the predicted times are for `bytes`. So a runner-up may have a shorter
  // predicted time.
  //
  // `dtype`, `op` and `root` count only if the collective has them; a barrier ignores `bytes`, too. With `codec`,
  // the operation is lossy.
  // kInvalidArgument for bytes < 0, a root that is not in the group, or an op that is undefined for the dtype.
  virtual Result<Explanation> explain(CollectiveKind kind, DType dtype, ReduceOp op, Node root, int64_t bytes,
                                      const std::optional<Codec>& codec = std::nullopt) = 0;
  // Hosts, latencies and NICs, as the choice of algorithm sees them. csrc/topology/topology.h describes the text.
  virtual std::string topology_text() const = 0;
  // One line per rank: the wire to it, and why there is no better one.
  virtual std::vector<std::string> describe_wires() const = 0;
};

}  // namespace braid

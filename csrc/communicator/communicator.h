// SPDX-License-Identifier: Apache-2.0
// A group of ranks: ordered collectives and point-to-point messages on plain memory. The c10d adapter and the
// array API are thin layers over this.
//
// Thread safety: all functions may be called from any thread, but all ranks must start a group's collectives in
// the same order. A failed communicator stays failed: every later call reports the first failure. Wrong arguments
// (kInvalidArgument) are refused before anything moves and harm nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/look_up.h"
#include "base/span.h"
#include "base/store.h"
#include "codec/lossy.h"
#include "communicator/explanation.h"
#include "communicator/work.h"
#include "engine/engine.h"
#include "options/options.h"
#include "schedule/collective.h"

namespace braid {

// One collective call on this rank. All memory stays valid until the work is done.
// Vector collectives (all_reduce, broadcast, reduce) take one input and one output block, block collectives one
// per rank where docs/schedule.md says the node has them (all_gather: 1 input, `ranks` outputs; ...). A barrier
// needs none, and touches none that it is given. A block may be empty. Blocks of an all_to_all may differ in size,
// if sender and receiver agree; so may those of all_gather, gather, scatter and reduce_scatter, if all ranks give
// the same sizes. Input and output may be the same memory as described in csrc/schedule/schedule.h, and must not
// overlap otherwise.
struct Operation {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  Node root = 0;
  std::vector<ConstBytes> inputs;
  std::vector<Bytes> outputs;
  size_t bytes = 0;  // of the vector, on an aggregator, which has no blocks
  // Of an all_reduce or reduce_scatter that may lose precision: a sum or an average of float32, float16 or
  // bfloat16. Where all ranks are on one host nothing is lost. The seed is mixed with the operation's number, so
  // that it may stay as it is.
  std::optional<Lossy> lossy = std::nullopt;
  milliseconds timeout{0};  // 0: the group's
  // After so long in the calling thread the operation is handed to the progress thread; 0: never. For callers who
  // must look up now and then, as Python must for signals.
  milliseconds inline_for{0};
};

// Counters of one group and collective, by family; messages are "send" and "recv".
struct OperationStats {
  std::string collective;
  std::string family;
  uint64_t calls = 0;
  uint64_t bytes = 0;      // summed size of the operations
  uint64_t min_bytes = 0;  // smallest and largest operation
  uint64_t max_bytes = 0;
  double seconds = 0;  // summed duration
  // Percentiles of the duration, each right within 6 %, and the longest.
  double p50_s = 0;
  double p95_s = 0;
  double p99_s = 0;
  double max_s = 0;
};

// An operation that has waited for a second or more.
struct Wait {
  std::string operation;
  double seconds = 0;
  std::vector<Node> ranks;  // it waits for directly, if it is known
};

struct Waits {
  std::vector<Wait> now;  // the longest first
  uint64_t notices = 0;   // lines written about waits
  double longest_s = 0;   // of all waits of a second or more
};

// Calls visit(name, value) for each, in the order in which they are shown.
template <class Visit>
void for_each_field(const OperationStats& stats, Visit&& visit) {
  visit("collective", stats.collective);
  visit("family", stats.family);
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
  // Finds the other ranks through the store; blocks until all are there (options.timeout). `name` tells groups of
  // one store apart.
  static Result<std::shared_ptr<Communicator>> create(std::shared_ptr<Engine> engine, std::shared_ptr<Store> store,
                                                      Node rank, int ranks, const std::string& name,
                                                      const Options& options);
  virtual ~Communicator() = default;

  virtual Node rank() const = 0;
  virtual int ranks() const = 0;
  virtual const std::string& name() const = 0;
  // Nothing is ever encoded where they are all on one.
  virtual bool is_on_several_hosts() const = 0;

  // Starts a collective. With `inline_if_idle` and nothing queued it is carried out by the calling thread before
  // start() returns, or for operation.inline_for; otherwise a progress thread carries it.
  virtual Result<std::shared_ptr<Work>> start(Operation operation, bool inline_if_idle) = 0;

  // The same for callers who wait: with nothing queued it is carried out here, for operation.inline_for at most,
  // and what it failed with is returned. Null when it is done; else what is left to wait for. Cheaper than
  // start().
  virtual Result<std::shared_ptr<Work>> run(Operation operation) = 0;

  // Point-to-point. Messages between the same two ranks with the same tag arrive in the order sent; different tags
  // and pairs are independent. The sizes must agree. From kAnyNode, the first message of the tag that arrives and
  // that no earlier receive has asked for is taken; the work knows its source then.
  virtual Result<std::shared_ptr<Work>> send(Node to, uint32_t tag, ConstBytes bytes, milliseconds timeout) = 0;
  virtual Result<std::shared_ptr<Work>> recv(Node from, uint32_t tag, Bytes bytes, milliseconds timeout) = 0;

  virtual void set_timeout(milliseconds timeout) = 0;
  // Sequence number of the last collective started.
  virtual uint64_t sequence() const = 0;
  // Fails everything pending and to come, here and, soon, on all ranks.
  virtual void abort(const std::string& reason) = 0;
  // Waits a few seconds for started operations, fails those that are left, and leaves. Idempotent. Who gives up
  // leaves all the same, at once.
  virtual void shutdown(const GiveUp& give_up = {}) = 0;
  virtual Status failure() const = 0;

  virtual std::vector<OperationStats> stats() const = 0;
  virtual Waits waits() const = 0;
  // Which family would carry an operation of `bytes`: those of the vector, or of all blocks on a rank that has
  // them all. Asks nobody, starts nothing, and works in a failed group. The family is exactly the one that start()
  // takes. It is chosen for the next power of two; for the smallest size where ranks may not know each other's
  // sizes (all_to_all, gather, scatter). The reason has the times of that size, but the predicted times are for
  // `bytes`, so that a runner-up may have the shorter one. `dtype`, `op` and `root` are looked at where the
  // collective has them; a barrier has no bytes either.
  // kInvalidArgument for bytes < 0, a root that is not in the group, an op that is undefined for the dtype.
  // With a codec, of one that is lossy.
  virtual Result<Explanation> explain(CollectiveKind kind, DType dtype, ReduceOp op, Node root, int64_t bytes,
                                      const std::optional<Codec>& codec = std::nullopt) = 0;
  // Hosts, latencies and NICs, as the choice sees them: csrc/topology/topology.h has the form.
  virtual std::string topology_text() const = 0;
  // One line per peer: which wire joins us, and why not a better one.
  virtual std::vector<std::string> describe_wires() const = 0;
};

}  // namespace braid

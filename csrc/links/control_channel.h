// SPDX-License-Identifier: Apache-2.0
// Blocking messages between the ranks of a group, beside its operations. Ranks use them to agree on something
// before the group's operations or between them.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/caught.h"
#include "base/clock.h"
#include "base/interruptible_wait.h"
#include "base/status.h"
#include "transport/mailbox.h"

namespace braid {

// Why ranks talk. Each purpose has steps of its own, so messages of two purposes are never taken for each other.
// Listed in the order in which the ranks of a group come to them. The numbers travel in tags: equal on all ranks.
enum class ControlPurpose : uint32_t {
  kLinkBenchmark = 0,        // 9 steps for each host
  kLinkBenchmarkResult = 1,  // 2 steps; ranks that measure nothing come here at once
  kProcessors = 2,           // 2 steps
  kReplan = 3,               // 2 steps; if it decides to measure, the benchmark's steps follow again
  kAggregatorGroup = 4,      // 2 steps
};
// The room of each purpose. It is enough for a link benchmark of 100000 hosts.
inline constexpr uint64_t kStepsPerPurpose = uint64_t{1} << 20;

// Ranks that use a control channel take the same steps. next_step() keeps the messages of one step apart from
// those of other steps, and from those of collectives, which count streams from 1.
class ControlChannel {
 public:
  // The group fails with kTimeout when the deadline passes. The message says which step was not finished, and
  // which rank was waited for. `what` is the task: "measuring their links". The group also fails when a rank gives
  // up.
  ControlChannel(Mailbox& mailbox, DoorbellWord& bell, std::string what, Deadline deadline, GiveUp give_up = {})
      : mailbox_(mailbox),
        bell_(bell),
        what_(std::move(what)),
        deadline_(deadline),
        give_up_(std::move(give_up)) {}

  void next_step() { ++step_; }
  // Goes to the first step of a purpose. A new channel is at the first purpose.
  void begin(ControlPurpose purpose) { step_ = static_cast<uint64_t>(purpose) * kStepsPerPurpose; }

  // `number` tells apart the messages of one step between the same two ranks.
  void start_send(Node to, uint64_t number, ConstBytes bytes, Request* request) {
    mailbox_.send(to, tag(number), bytes, request);
  }
  void start_recv(Node from, uint64_t number, Bytes bytes, Request* request) {
    mailbox_.recv(from, tag(number), bytes, request);
  }
  Status send(Node to, uint64_t number, ConstBytes bytes) {
    Request request;
    start_send(to, number, bytes, &request);
    return wait_for(request, to);
  }
  Status recv(Node from, uint64_t number, Bytes bytes) {
    Request request;
    start_recv(from, number, bytes, &request);
    return wait_for(request, from);
  }

  // All of the group's ranks 0..ranks-1 call these. Each takes one step.
  // tell: returns the first rank's text on all ranks.
  // consult: every rank gives a word of the same size. The first rank calls `decide` with all words; words[r] is
  // rank r's. Returns the decided text on all ranks.
  using Words = std::vector<std::vector<std::byte>>;
  Result<std::string> tell(Node rank, int ranks, std::string text);
  Result<std::string> consult(Node rank, int ranks, ConstBytes word,
                              const std::function<std::string(const Words&)>& decide);

  // Waits until done() returns true. done() is called again after anything moved. After a failure no request is
  // left open.
  template <class Done>
  Status wait(Done done, Node on = kAnyNode) {
    Waiter waiter(bell_);
    while (!done()) {
      if (mailbox_.has_ended()) return mailbox_.ending();
      if (Status bad = end_of_patience(on); !bad.ok()) {
        // The requests are on the callers' stack, so they must end before an exception leaves.
        const Status thrown = caught("giving up on ranks", [&] { mailbox_.fail(bad); });
        if (!thrown.ok()) mailbox_.fail_here(thrown);
        return mailbox_.ending();
      }
      mailbox_.poll() ? waiter.moved() : waiter.idle(Clock::now() + milliseconds(1), true);
    }
    return {};
  }

 private:
  static constexpr uint64_t kStream = 0;

  Tag tag(uint64_t number) const { return {kStream, step_ << 32 | number}; }
  Status wait_for(Request& request, Node peer) {
    Status bad = wait([&] { return request.done(); }, peer);
    return bad.ok() ? request.status() : bad;
  }
  Status end_of_patience(Node on);

  Mailbox& mailbox_;
  DoorbellWord& bell_;
  const std::string what_;
  const Deadline deadline_;
  const GiveUp give_up_;
  Clock::time_point look_up_at_{};
  uint64_t step_ = 0;
};

}  // namespace braid

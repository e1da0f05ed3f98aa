// SPDX-License-Identifier: Apache-2.0
// Carries operations on tensors of accelerators to the communicator and back, and CPU operations that must wait behind
// them. Only a courier's thread asks a device whether a copy has ended. The threads that carry operations never call a
// device.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/interruptible_wait.h"
#include "c10d/reserve.h"
#include "c10d/staging.h"
#include "communicator/communicator.h"

namespace braid::adapter {

// One operation for the courier.
struct Parcel {
  using Submit = std::function<Result<std::shared_ptr<braid::Work>>(Communicator&)>;

  const char* name = "";  // as in errors: "all_reduce"
  uint64_t sequence = 0;
  bool is_collective = true;         // no message
  std::shared_ptr<Staging> staging;  // started; null for CPU tensors
  Submit submit;                     // starts the operation
  // Called with the communicator's work when it has started. May be null.
  std::function<void(const std::shared_ptr<braid::Work>&)> started = nullptr;
};

// The queue of one group. Operations start in the order of add(), whatever device their tensors are on. The thread
// is made with the first operation.
class Courier {
 public:
  static std::shared_ptr<Courier> make(std::shared_ptr<Communicator> group, const CopySettings& settings);
  Courier(std::shared_ptr<Communicator> group, const CopySettings& settings)
      : group_(std::move(group)), settings_(settings) {}
  ~Courier() { end(); }
  // Waits a few seconds for copies under way, and ends the thread. REQUIRES: the group has ended, so that no operation
  // waits for another rank.
  void end();
  // Ends all couriers of this process: for the end of the process, where a thread must not find its device gone.
  static void end_all();

  // True while an operation waits to be started. Then the next one must be added, too, to keep the order. A caller
  // who sees false may start it himself.
  bool is_busy() const { return waiting_.load(std::memory_order_acquire) > 0; }
  // Starts the copies of an operation, before it is added: to be called in the caller's thread. If the group's pinned
  // memory is used up, the courier starts them when earlier collectives have released theirs.
  // Null for a message: it has no order among other messages, so it waits for nobody's tensors or memory, and it is not
  // cut.
  void stage(Staging& staging, Operation* operation, const char* name);
  // The streams of this group on a device. Messages have streams of their own, so they wait for no collective.
  std::shared_ptr<const CopyStreams> streams(c10::Device device, bool of_messages);
  // The work is done when the copies up are enqueued.
  std::shared_ptr<braid::Work> add(Parcel parcel);
  // The stream waits for all added collectives that must come before one that reaches so far. Blocks until their copies
  // up are enqueued.
  Waited order(const Reach& reach, c10::Stream stream, const GiveUp& give_up);
  // Waits until all added operations have started.
  Waited wait_until_idle(Deadline deadline, const GiveUp& give_up);
  // The sequence number for the next collective that is added.
  uint64_t next_sequence();
  // The sequence number of the last collective that was started or added.
  uint64_t sequence() const;

 private:
  // What is said about an operation before and after it has started.
  struct Told {
    std::mutex mutex;
    std::shared_ptr<const braid::Work> real;
  };
  struct Flight {
    Parcel parcel;
    std::shared_ptr<Told> told = std::make_shared<Told>();
    std::shared_ptr<braid::Work> shown;           // as the caller sees it
    std::shared_ptr<braid::Work> real = nullptr;  // null until it has started
  };

  // Operations that were added, and will write what this one reads.
  std::vector<std::shared_ptr<const Staging>> writers_before(const Staging& reader);
  struct Streams {
    c10::Device device;
    bool of_messages;
    std::shared_ptr<const CopyStreams> streams;
  };
  void run();
  // Each returns true if something moved. REQUIRES: the lock is held; it is released while they work.
  // Starts the first operation of the queue when its first inputs are there, and removes it when all are: a later
  // operation may write where these inputs lie.
  bool start_first(std::unique_lock<std::mutex>& lock);
  // Takes memory for the next collective from the group's budget. An operation that is larger than the budget gets it
  // when all others have released theirs. REQUIRES: the lock is held.
  bool takes_memory(size_t bytes, at::Tensor& memory);
  bool send_settled_up(std::unique_lock<std::mutex>& lock);
  bool finish_ended(std::unique_lock<std::mutex>& lock);
  bool release_landed(std::unique_lock<std::mutex>& lock);
  void launch(const std::shared_ptr<Flight>& flight);
  void finish(Flight& flight);

  const std::shared_ptr<Communicator> group_;
  const CopySettings settings_;
  std::atomic<size_t> waiting_{0};
  std::atomic<uint64_t> last_sequence_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Flight>> queue_;          // not started; the first may have started
  std::deque<std::shared_ptr<Flight>> running_;        // started on a device's tensors, not finished
  std::deque<std::shared_ptr<Flight>> ended_;          // the communicator is done with them
  std::vector<std::shared_ptr<Staging>> collectives_;  // added and not landed
  std::vector<std::shared_ptr<Staging>> landing_;      // copies may be under way
  std::vector<Streams> streams_;
  std::shared_ptr<Reserve> reserve_;      // of a device with flags.
  size_t ungated_ = 0;                    // collectives with outputs that have copies up to enqueue.
  size_t flying_ = 0;                     // started, not ended.
  size_t held_bytes_ = 0;                 // of pinned memory
  size_t without_memory_ = 0;             // added operations that wait for memory
  bool settled_ = false;                  // an operation has settled bytes since the last look
  Deadline closing_until_ = kNoDeadline;  // then copies under way are given up
  std::thread thread_;
};

}  // namespace braid::adapter

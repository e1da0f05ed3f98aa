// SPDX-License-Identifier: Apache-2.0
// Records the last operations of this process, to find the cause of a hang. Code outside torch's libraries cannot
// write to torch's flight recorder. So this recorder keeps the same facts, and Python shows them in the same form.
#pragma once

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "base/clock.h"
#include "c10d/errors.h"
#include "communicator/work.h"

namespace braid::adapter {

struct RecordedTensor {
  at::DimVector sizes;
  at::ScalarType dtype = at::kByte;
};

struct RecordedOperation {
  enum class State : uint8_t { kStarted, kCompleted, kFailed };

  uint64_t id = 0;
  std::string group;  // torch's name of the group; then its description and members
  std::string description;
  std::shared_ptr<const Members> members;
  int ranks = 1;
  const char* name = "";  // the operation's name in torch's recorder
  bool is_message = false;
  int from = -1;  // sender of a message; -1 if not known yet
  int to = -1;
  uint64_t sequence = 0;  // collectives and messages are counted separately
  std::vector<RecordedTensor> inputs;
  std::vector<RecordedTensor> outputs;
  milliseconds timeout{0};
  int64_t created_ns = 0;  // since the epoch
  int64_t ended_ns = 0;    // since the epoch; 0 while it runs
  State state = State::kStarted;
  std::weak_ptr<const braid::Work> work;  // set while it runs
};

// Thread safe. Holds the last TORCH_FR_BUFFER_SIZE operations, 2000 by default; with 0 it records nothing.
class Recorder {
 public:
  Recorder();
  bool records() const { return capacity_ > 0; }
  // Records an operation. Returns its id for follow() and ended().
  uint64_t started(RecordedOperation operation);
  // Sets the work of a running operation. The work knows the ranks that the operation waits for.
  void follow(uint64_t id, const std::shared_ptr<const braid::Work>& work);
  // `source`: the sender of a received message; -1 for other operations.
  void ended(uint64_t id, bool success, int source);
  std::vector<RecordedOperation> operations() const;

 private:
  RecordedOperation* find_locked(uint64_t id);
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::deque<RecordedOperation> operations_;
  uint64_t next_id_ = 0;
};

std::vector<RecordedTensor> recorded(const std::vector<at::Tensor>& tensors);

}  // namespace braid::adapter

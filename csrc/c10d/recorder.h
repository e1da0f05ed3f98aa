// SPDX-License-Identifier: Apache-2.0
// The last operations of this process, for who looks for the cause of a hang. torch's own flight recorder cannot be
// written to from outside its libraries, so this one keeps the same facts, and Python shows them in the same form.
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
  std::string group;  // torch's name and description of it, and who is in it
  std::string description;
  std::shared_ptr<const Members> members;
  int ranks = 1;
  const char* name = "";  // as torch's recorder calls it
  bool is_message = false;
  int from = -1;  // of a message; -1 while any rank may send it
  int to = -1;
  uint64_t sequence = 0;  // counts collectives and messages apart
  std::vector<RecordedTensor> inputs;
  std::vector<RecordedTensor> outputs;
  milliseconds timeout{0};
  int64_t created_ns = 0;  // since the epoch, as is the next
  int64_t ended_ns = 0;
  State state = State::kStarted;
  std::weak_ptr<const braid::Work> work;  // while it runs
};

// Thread safe. Holds the last 2000 operations, or as many as TORCH_FR_BUFFER_SIZE says; with 0 it records nothing.
class Recorder {
 public:
  Recorder();
  bool records() const { return capacity_ > 0; }
  // The id by which ended() finds it again.
  uint64_t started(RecordedOperation operation);
  // Of one that runs on: where to ask whom it waits for.
  void follow(uint64_t id, const std::shared_ptr<const braid::Work>& work);
  // `source` is the sender where it was not known at the start, -1 otherwise.
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

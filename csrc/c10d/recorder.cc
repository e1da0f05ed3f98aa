// SPDX-License-Identifier: Apache-2.0
#include "c10d/recorder.h"

#include <chrono>
#include <utility>

#include "base/env.h"

namespace braid::adapter {
namespace {

constexpr int64_t kDefaultCapacity = 2000;
constexpr int64_t kMostCapacity = 1'000'000;

int64_t now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

size_t capacity() {
  const auto given = env_integer("TORCH_FR_BUFFER_SIZE", kDefaultCapacity, 0, kMostCapacity);
  return static_cast<size_t>(given.ok() ? given.value() : kDefaultCapacity);
}

}  // namespace

Recorder::Recorder() : capacity_(capacity()) {}

uint64_t Recorder::started(RecordedOperation operation) {
  operation.created_ns = now_ns();
  const std::lock_guard<std::mutex> lock(mutex_);
  operation.id = next_id_++;
  operations_.push_back(std::move(operation));
  if (operations_.size() > capacity_) operations_.pop_front();
  return next_id_ - 1;
}

void Recorder::ended(uint64_t id, bool success, int source) {
  const int64_t now = now_ns();
  const std::lock_guard<std::mutex> lock(mutex_);
  RecordedOperation* const operation = find_locked(id);
  if (operation == nullptr) return;
  operation->ended_ns = now;
  operation->state = success ? RecordedOperation::State::kCompleted : RecordedOperation::State::kFailed;
  operation->work.reset();
  if (source >= 0) operation->from = source;
}

void Recorder::follow(uint64_t id, const std::shared_ptr<const braid::Work>& work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (RecordedOperation* const operation = find_locked(id)) operation->work = work;
}

// Null if newer operations have replaced it.
RecordedOperation* Recorder::find_locked(uint64_t id) {
  if (operations_.empty() || id < operations_.front().id) return nullptr;
  return &operations_[id - operations_.front().id];
}

std::vector<RecordedOperation> Recorder::operations() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {operations_.begin(), operations_.end()};
}

std::vector<RecordedTensor> recorded(const std::vector<at::Tensor>& tensors) {
  std::vector<RecordedTensor> list;
  list.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) list.push_back({at::DimVector(tensor.sizes()), tensor.scalar_type()});
  return list;
}

}  // namespace braid::adapter

// SPDX-License-Identifier: Apache-2.0
#include "c10d/leg_work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "c10d/mutations.h"

namespace braid::adapter {
namespace {

using c10::ivalue::Future;

}  // namespace

void LegMemory::ends_with(c10::Event done, c10::Stream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  done_ = std::move(done);
  stream_ = stream;
  if (mutated(Mutation::kLegMemoryNotKept)) tensors_.clear();
}

bool LegMemory::landed() {
  std::vector<at::Tensor> released;  // outside the lock: releasing a tensor may take the GIL
  const std::lock_guard<std::mutex> lock(mutex_);
  if (done_ && !done_->query()) return false;
  std::swap(released, tensors_);
  return true;
}

void LegMemory::join() {
  std::vector<at::Tensor> released;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (done_ && !mutated(Mutation::kLegNotJoined))
    done_->block(c10::impl::VirtualGuardImpl(done_->device_type()).getStream(stream_->device()));
  std::swap(released, tensors_);
}

void LegMemory::block(c10::Stream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (done_ && stream_->device() == stream.device() && !mutated(Mutation::kLegPassed)) done_->block(stream);
}

std::optional<c10::Stream> LegMemory::stream() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stream_;
}

LegWork::LegWork(int rank, ::c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
                 std::vector<at::Tensor> results, std::shared_ptr<LegMemory> memory)
    : ::c10d::Work(rank, type, title,
                   title == nullptr ? std::optional<std::vector<at::Tensor>>()
                                    : std::optional<std::vector<at::Tensor>>(inputs)),
      results_(std::move(results)),
      memory_(std::move(memory)) {}

void LegWork::launched() {
  if (auto end = std::exchange(recordFunctionEndCallback_, nullptr)) end();
}

bool LegWork::wait(std::chrono::milliseconds) {
  memory_->join();
  return true;
}

c10::intrusive_ptr<Future> LegWork::getFuture() {
  const auto stream = memory_->stream();
  std::vector<c10::Device> devices;
  if (stream) devices = {stream->device()};
  auto future = c10::make_intrusive<Future>(c10::ListType::ofTensors(), std::move(devices));
  // The future records its event on the current stream: whoever waits for it waits for the results.
  std::optional<c10::StreamGuard> guard;
  if (stream && !mutated(Mutation::kLegFutureOnWrongStream)) guard.emplace(*stream);
  future->markCompleted(c10::IValue(results_));
  return future;
}

c10::intrusive_ptr<Future> LegWork::getFutureResult() {
  auto future = c10::make_intrusive<Future>(c10::IntType::get());
  future->markCompleted(c10::IValue(static_cast<int64_t>(::c10d::WorkResult::SUCCESS)));
  return future;
}

}  // namespace braid::adapter

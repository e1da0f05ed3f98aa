// SPDX-License-Identifier: Apache-2.0
// The Work of a collective that went by the local leg. It was launched as a whole when this object is given out.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace braid::adapter {

// What must live until the device has run a launched collective.
class LegMemory {
 public:
  explicit LegMemory(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {}
  // The collective ends on the stream where this event is recorded.
  void ends_with(c10::Event done, c10::Stream stream);
  // True when the results are there. Then the tensors are released.
  bool landed();
  // The calling thread's current stream waits for the results. Releases the tensors.
  void join();
  // The given stream waits for the results.
  void block(c10::Stream stream);
  std::optional<c10::Stream> stream();

 private:
  std::mutex mutex_;
  std::vector<at::Tensor> tensors_;
  std::optional<c10::Event> done_;
  std::optional<c10::Stream> stream_;
};

class LegWork final : public ::c10d::Work {
 public:
  // `title`: the name of a profiled event with these inputs, which ends with launched(). Null: no event.
  LegWork(int rank, ::c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
          std::vector<at::Tensor> results, std::shared_ptr<LegMemory> memory);
  // Everything is launched: for CPU tensors the results are there.
  void launched();

  bool isCompleted() override { return memory_->landed(); }
  bool isSuccess() const override { return true; }
  std::vector<at::Tensor> result() override { return results_; }
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;

 private:
  const std::vector<at::Tensor> results_;
  const std::shared_ptr<LegMemory> memory_;
};

}  // namespace braid::adapter

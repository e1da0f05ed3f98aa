// SPDX-License-Identifier: Apache-2.0
#include "c10d/work.h"

#include <c10/util/Exception.h>

#include <optional>
#include <string>
#include <utility>

#include "base/interruptible_wait.h"
#include "c10d/gil.h"
#include "communicator/process.h"

namespace braid::adapter {
namespace {

using Inputs = std::optional<std::vector<at::Tensor>>;

}  // namespace

Work::Work(::c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs, Tensors tensors,
           std::shared_ptr<const Members> members)
    : ::c10d::Work(members->rank, type, title, title == nullptr ? Inputs() : Inputs(inputs)),
      made_under_(fork_count()),
      members_(std::move(members)),
      completion_(std::make_shared<Completion>(std::move(tensors), members_)) {
  if (recordFunctionEndCallback_) also([end = std::move(recordFunctionEndCallback_)](const Status&) { end(); });
}

Work::~Work() {
  // In a forked child, locks of these objects may be held for ever by threads that do not exist there.
  if (made_under_ == fork_count()) return;
  abandon(std::move(completion_));
  abandon(std::move(started_));
}

void Work::follow(std::shared_ptr<braid::Work> started, std::weak_ptr<Communicator> group) {
  started_ = std::move(started);
  group_ = std::move(group);
  if (!settle_if_done()) {
    try {
      started_->on_done([completion = completion_](const Status& status) { completion->settle(status); });
    } catch (...) {  // the tensors would be released too early, so wait for the operation to end
      const WithoutGil without_gil;
      static_cast<void>(started_->wait(kNoDeadline));
      throw;
    }
  }
}

bool Work::settle_if_done() const {
  if (!started_->done()) return false;
  // Another thread that settles now may need the GIL to copy results to a tensor of a Python subclass.
  const WithoutGil without_gil;
  completion_->settle(started_->status());
  return true;
}

bool Work::isCompleted() { return settle_if_done() && (completion_->error() || completion_->landed()); }

bool Work::isSuccess() const { return exception() == nullptr; }

std::exception_ptr Work::exception() const { return settle_if_done() ? completion_->error() : nullptr; }

int Work::sourceRank() const {
  const Node source = started_->source();
  TORCH_CHECK(
      source != kAnyNode, "braid: ", started_->what(), " has no source rank",
      retrieveOpType() == ::c10d::OpType::RECVANYSOURCE ? " yet; wait() for it first" : "; only receives do");
  return source;
}

std::vector<at::Tensor> Work::result() { return completion_->results(); }

void Work::synchronize() { wait(); }

bool Work::wait(std::chrono::milliseconds timeout) {
  TORCH_CHECK(made_under_ == fork_count(), "braid: ", started_->what(),
              " was started before this process was forked and cannot be waited for in the child");
  {
    const WithoutGil without_gil;
    if (completion_->is_gated() && timeout == kNoTimeout && !started_->done()) {
      if (const auto group = group_.lock()) raise_if_failed(group->failure(), *members_);
      completion_->join_stream();
      return true;
    }
    Interrupts interrupts;
    static_cast<void>(wait_looking_up(*started_, deadline_after(timeout), interrupts.give_up()));
    throw_if_any(interrupts);  // the operation goes on
    if (!settle_if_done()) {
      const std::string text = started_->what() + " has not finished within the " +
                               std::to_string(timeout.count()) +
                               " ms given to wait(); it goes on, and the group is unharmed";
      raise_if_failed({Code::kTimeout, text}, *members_);
    }
    completion_->wait_for_futures();
    completion_->join_stream();
  }
  if (const auto error = completion_->error()) std::rethrow_exception(error);
  return true;
}

void Work::abort() {
  const WithoutGil without_gil;
  if (const auto group = group_.lock()) {
    group->abort("abort() of " + started_->what() + " was called");
  }
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  const WithoutGil without_gil;
  return completion_->future();
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFutureResult() {
  const WithoutGil without_gil;
  return completion_->future_result();
}

float Work::getDuration() const {
  TORCH_CHECK(started_->done(), "braid: ", started_->what(), " is not finished; its duration is not known yet");
  return std::chrono::duration<float, std::milli>(started_->duration()).count();
}

uint64_t Work::getSequencenumber() const { return started_->sequence(); }

}  // namespace braid::adapter

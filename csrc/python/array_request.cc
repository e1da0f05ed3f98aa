// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/caught.h"
#include "base/interruptible_wait.h"
#include "interpreter/interrupts.h"
#include "interpreter/without_gil.h"
#include "python/array_communicator.h"

namespace braid {
namespace {

// Operations under way that nobody holds any more, and their arrays. Guarded by the GIL.
struct Dropped {
  std::vector<std::pair<std::shared_ptr<Work>, std::vector<py::object>>> rows;
};

}  // namespace

void let_go_of_finished() {
  auto& rows = of_this_process<Dropped>().rows;
  if (rows.empty()) return;
  const auto under_way = [](const auto& row) { return !row.first->done(); };
  const auto finished = std::stable_partition(rows.begin(), rows.end(), under_way);
  // Freeing an array may run Python, and so come back to here: not while the list is in disorder.
  const std::vector freed(std::make_move_iterator(finished), std::make_move_iterator(rows.end()));
  rows.erase(finished, rows.end());
}

void raise(const Status& status) {
  const py::object error = py::module_::import("braid._errors")
                               .attr("error_of")(name_of(status.code()), status.message(), status.rank());
  PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
  throw py::error_already_set();
}

void raise_if_failed(const Status& status) {
  if (!status.ok()) raise(status);
}

ArrayRequest::ArrayRequest(std::shared_ptr<Work> work, std::vector<py::object> arrays)
    : work_(std::move(work)), arrays_(std::move(arrays)) {}

ArrayRequest::~ArrayRequest() {
  if (made_under_ != fork_count()) {  // the parent's thread may hold the lock of the work for ever
    abandon(std::move(work_));
    return;
  }
  const Status thrown = caught("keeping the arrays of an operation", [this] {
    if (!work_->done()) of_this_process<Dropped>().rows.emplace_back(work_, std::move(arrays_));
    let_go_of_finished();
  });
  if (thrown.ok() || arrays_.empty()) return;
  const WithoutGil without_gil;  // they are still here, and go when the operation has ended
  static_cast<void>(work_->wait(kNoDeadline));
}

void ArrayRequest::check_process() const {
  if (made_under_ == fork_count()) return;
  raise({Code::kAborted, work_->what() +
                             " was started before this process was forked, and can be waited for in the parent "
                             "alone"});
}

bool ArrayRequest::done() const {
  check_process();
  return work_->done();
}

Node ArrayRequest::source() const {
  check_process();
  return work_->source();
}

void ArrayRequest::wait(milliseconds timeout) {
  check_process();
  const Deadline deadline = deadline_after(timeout);
  Interrupts interrupts;
  if (!work_->done()) {
    const WithoutGil without_gil;
    static_cast<void>(wait_looking_up(*work_, deadline, interrupts.give_up()));
  }
  if (interrupts.restore()) throw py::error_already_set();
  if (!work_->done()) {
    raise({Code::kTimeout, work_->what() + " has not finished within the " + std::to_string(timeout.count()) +
                               " ms given to wait(); it goes on, and the group is unharmed"});
  }
  // Letting go of an array may run Python, which may come here again: nothing of it must be left to be let go of.
  static_cast<void>(std::exchange(arrays_, {}));
  raise_if_failed(work_->status());
}

}  // namespace braid

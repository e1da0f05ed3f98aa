// SPDX-License-Identifier: Apache-2.0
#include "c10d/backend.h"

#include <ATen/record_function.h>

#include <utility>

#include "c10d/coalesced.h"
#include "c10d/process.h"
#include "c10d/store.h"
#include "c10d/work.h"

namespace braid::adapter {
namespace {

const char* title_if_profiled(const char* title) { return at::hasCallbacks() ? title : nullptr; }

}  // namespace

c10::intrusive_ptr<Backend> Backend::create(const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size,
                                            milliseconds timeout, const std::string& group_id,
                                            std::vector<int64_t> global_ranks) {
  const WithoutGil without_gil;
  const Members members{rank, std::move(global_ranks)};
  TORCH_CHECK_VALUE(size > 0 && rank >= 0 && rank < size, "braid: rank ", rank, " is none of a group of ", size);
  auto options = options_from_env();
  raise_if_failed(options.status(), members);
  options.value().timeout = timeout;
  auto group = make_group(std::make_shared<C10dStore>(store), rank, size, group_id, options.value());
  raise_if_failed(group.status(), members);
  return c10::make_intrusive<Backend>(std::move(group).value(), members, timeout);
}

Backend::Backend(std::shared_ptr<Communicator> group, Members members, milliseconds timeout)
    : ::c10d::Backend(group->rank(), group->ranks()),
      made_under_(fork_count()),
      group_(std::move(group)),
      members_(std::make_shared<const Members>(std::move(members))),
      options_(c10::make_intrusive<Options>("braid", timeout)) {
  options_->group_name = group_->name();
  const auto& ranks = members_->global_ranks;
  options_->global_ranks_in_group.assign(ranks.begin(), ranks.end());
  init();
}

Backend::~Backend() {
  if (made_under_ == fork_count()) {
    end_group(std::move(group_));
  } else {
    abandon(std::move(group_));
  }
}

Communicator& Backend::group() const {
  TORCH_CHECK(made_under_ == fork_count(),
              "braid: this process group was made before the process was forked, and cannot be used in the child; "
              "make a new group there, or start children with the 'spawn' or 'forkserver' method");
  return *group_;
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  group().set_timeout(timeout);
  options_->timeout = timeout;
}

void Backend::abort() { abort("abort() was called"); }

void Backend::abort(const std::string& reason) {
  const WithoutGil without_gil;
  group().abort(reason);
}

void Backend::shutdown() {
  if (made_under_ != fork_count()) return;
  const WithoutGil without_gil;
  group_->shutdown();
}

::c10d::ErrorType Backend::getError() {
  switch (group().failure().code()) {
    case Code::kOk: return ::c10d::ErrorType::SUCCESS;
    case Code::kTimeout: return ::c10d::ErrorType::TIMEOUT;
    case Code::kPeerLost: return ::c10d::ErrorType::REMOTE_ERROR;
    default: return ::c10d::ErrorType::COMM_ERROR;
  }
}

uint64_t Backend::getSequenceNumberForGroup() { return group().sequence(); }

Backend::Work Backend::start(Call call) {
  const WithoutGil without_gil;
  auto work = c10::make_intrusive<adapter::Work>(call.type, title_if_profiled(call.title), std::move(call.tensors),
                                                 members_);
  auto started = group().start(std::move(call.operation), !call.asynchronous);
  raise_if_failed(started.status(), *members_);
  work->follow(std::move(started).value(), group_);
  return work;
}

Backend::Work Backend::start_all(::c10d::OpType type, std::vector<Call> calls) {
  std::vector<Work> parts;
  for (Call& call : calls) parts.push_back(start(std::move(call)));
  if (parts.size() == 1) return parts.front();
  return c10::make_intrusive<CoalescedWork>(rank_, type, std::move(parts));
}

Backend::Work Backend::send(TensorList& tensors, int to, int tag) {
  const at::Tensor& tensor = check_message(place(), tensors, to, tag, {"send"});
  const WithoutGil without_gil;
  Tensors kept;
  const ConstBytes bytes = kept.read(tensor);
  auto work = c10::make_intrusive<adapter::Work>(::c10d::OpType::SEND, title_if_profiled("braid:send"),
                                                 std::move(kept), members_);
  auto started = group().send(to, static_cast<uint32_t>(tag), bytes, milliseconds(0));
  raise_if_failed(started.status(), *members_);
  work->follow(std::move(started).value(), group_);
  return work;
}

Backend::Work Backend::recv(TensorList& tensors, int from, int tag) {
  const at::Tensor& tensor = check_message(place(), tensors, from, tag, {"recv"});
  const WithoutGil without_gil;
  Tensors kept;
  const Bytes bytes = kept.write(tensor, {"recv"});
  auto work = c10::make_intrusive<adapter::Work>(::c10d::OpType::RECV, title_if_profiled("braid:recv"),
                                                 std::move(kept), members_, from);
  auto started = group().recv(from, static_cast<uint32_t>(tag), bytes, milliseconds(0));
  raise_if_failed(started.status(), *members_);
  work->follow(std::move(started).value(), group_);
  return work;
}

Backend::Work Backend::recvAnysource(TensorList&, int) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "braid: recv from any source is not supported; name the sender with src= or group_src=");
}

}  // namespace braid::adapter

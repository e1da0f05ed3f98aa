// SPDX-License-Identifier: Apache-2.0
// Makes and ends a backend, and starts operations on it. Collectives are in collectives.cc, messages in
// messages.cc, derived groups in derived.cc.
#include "c10d/backend.h"

#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>

#include <utility>

#include "c10d/gil.h"
#include "c10d/packed.h"
#include "c10d/store.h"
#include "communicator/process.h"

namespace braid::adapter {

c10::intrusive_ptr<Backend> Backend::create(BackendConfig config) {
  const WithoutGil without_gil;
  const auto& [store, rank, size, timeout, group_id, global_ranks, known_as, servers, stated] = config;
  const Members members{rank, global_ranks};
  TORCH_CHECK_VALUE(size > 0 && rank >= 0 && rank < size, "braid: rank ", rank, " is none of a group of ", size);
  auto options = options_from_env();
  raise_if_failed(options.status(), members);
  options.value().timeout = timeout;
  if (servers) options.value().servers = std::make_shared<C10dStore>(servers);
  options.value().stated = stated;
  Interrupts interrupts;
  options.value().give_up = interrupts.give_up();
  const auto rendezvous_store = std::make_shared<C10dStore>(store, interrupts.give_up());
  auto group = make_group(rendezvous_store, rank, size, group_id, options.value());
  if (interrupts.any() && group.ok()) end_group(std::move(group).value());
  throw_if_any(interrupts);
  raise_if_failed(group.status(), members);
  return c10::make_intrusive<Backend>(std::move(group).value(), std::move(config));
}

Backend::Backend(std::shared_ptr<Communicator> group, BackendConfig config)
    : ::c10d::Backend(group->rank(), group->ranks()),
      made_under_(fork_count()),
      group_(std::move(group)),
      config_(std::move(config)),
      members_(std::make_shared<const Members>(rank_, config_.global_ranks)),
      timeout_(config_.timeout) {
  init();
}

Backend::~Backend() {
  if (made_under_ == fork_count()) {
    const WithoutGil without_gil;
    Interrupts interrupts;  // keeps exceptions of signal handlers for later: a destructor must not throw
    end_group(std::move(group_), interrupts.give_up());
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

c10::intrusive_ptr<Backend::Options> Backend::getBackendOptions() {
  auto options = c10::make_intrusive<BackendOptions>(timeout_.load());
  options->group_name = config_.group_id;
  const auto& ranks = config_.global_ranks;
  options->global_ranks_in_group.assign(ranks.begin(), ranks.end());
  return options;
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  group().set_timeout(timeout);
  timeout_ = timeout;
}

void Backend::abort() { abort("abort() was called"); }

void Backend::abort(const std::string& reason) {
  const WithoutGil without_gil;
  group().abort(reason);
}

void Backend::shutdown() {
  if (made_under_ != fork_count()) return;
  const WithoutGil without_gil;
  Interrupts interrupts;
  group_->shutdown(interrupts.give_up());
  throw_if_any(interrupts);
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

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  return at::empty({size}, options.device(at::kCPU));
}

std::shared_ptr<c10::Allocator> Backend::getMemAllocator() {
  return {c10::GetCPUAllocator(), [](c10::Allocator*) {}};  // lives as long as the process
}

// ---- Starting operations

c10::intrusive_ptr<adapter::Work> Backend::begin(Call& call, const char* title, const Starter& starter,
                                                 std::function<void()> at_end) {
  const bool is_message = ::c10d::isP2POp(call.type);
  const uint64_t sequence = is_message ? ++messages_ : group().sequence() + 1;
  std::optional<CommsRecord> comms;
  if (at::hasCallbacks()) {
    comms.emplace(ProfiledGroup{pg_uid_, pg_desc_, rank_, size_, config_.global_ranks}, call, sequence);
  }
  Recorder& recorder = of_this_process<Recorder>();
  const std::optional<uint64_t> record = note(recorder, call, sequence);
  auto work = c10::make_intrusive<adapter::Work>(call.type, title, call.inputs, std::move(call.tensors), members_);
  if (at_end) work->also([at_end = std::move(at_end)](const Status&) { at_end(); });
  const std::shared_ptr<CompletionHook> hook = completion_hook();

  auto started = starter();
  if (!started.ok() && record) recorder.ended(*record, false, kAnyNode);
  raise_if_failed(started.status(), *members_);
  if (record && started.value()->done()) {
    recorder.ended(*record, started.value()->status().ok(), started.value()->source());
  } else if (record) {
    recorder.follow(*record, started.value());
    work->also([&recorder, id = *record, started = started.value()](const Status& status) {
      recorder.ended(id, status.ok(), started->source());
    });
  }
  if (hook) {
    hook->started();
    work->also([hook, type = call.type, started = started.value()](const Status&) {
      const auto begun = started->started_at();
      const auto duration = started->duration();
      hook->ended(
          std::make_shared<::c10d::WorkInfo>(type, started->sequence(), begun, begun + duration, duration));
    });
  }
  work->follow(std::move(started).value(), group_);
  if (coalescing_threads_ > 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto open = coalescing_.find(std::this_thread::get_id());
    if (open != coalescing_.end()) open->second->add(work);
  }
  return work;
}

std::optional<uint64_t> Backend::note(Recorder& recorder, const Call& call, uint64_t sequence) const {
  if (!recorder.records()) return std::nullopt;
  RecordedOperation operation;
  operation.group = pg_uid_;
  operation.description = pg_desc_;
  operation.members = members_;
  operation.ranks = size_;
  operation.name = name_in_records(call.type);
  operation.is_message = ::c10d::isP2POp(call.type);
  if (operation.is_message) {
    operation.from = call.type == ::c10d::OpType::SEND ? rank_ : call.peer;
    operation.to = call.type == ::c10d::OpType::SEND ? call.peer : rank_;
  }
  operation.sequence = sequence;
  operation.inputs = recorded(call.inputs);
  operation.outputs = recorded(call.tensors.results());
  operation.timeout = call.operation.timeout.count() > 0 ? call.operation.timeout : timeout_.load();
  return recorder.started(std::move(operation));
}

std::string Backend::title_of(const Call& call) const {
  return at::hasCallbacks() ? config_.known_as + ":" + call.name : "";
}

Backend::Work Backend::start(Call call) {
  const WithoutGil without_gil;
  const std::string title = title_of(call);
  return begin(call, title.empty() ? nullptr : title.c_str(), [&] { return start_operation(call); });
}

// A waiting thread must check for signals. So it hands a long operation to the progress thread.
Result<std::shared_ptr<braid::Work>> Backend::start_operation(Call& call) {
  call.operation.inline_for = kLookUpEvery;
  return group().start(std::move(call.operation), !call.asynchronous);
}

Backend::Work Backend::start_all(::c10d::OpType type, std::vector<Call> calls) {
  const WithoutGil without_gil;
  TensorList inputs, results;
  for (const Call& call : calls) {
    inputs.insert(inputs.end(), call.inputs.begin(), call.inputs.end());
    results.insert(results.end(), call.tensors.results().begin(), call.tensors.results().end());
  }
  calls = packed(std::move(calls), rank_, group().is_on_several_hosts());
  if (calls.size() == 1) return start(std::move(calls.front()));
  const std::string title = calls.empty() ? "" : title_of(calls.front());
  auto all = c10::make_intrusive<CoalescedWork>(rank_, type, title.empty() ? nullptr : title.c_str(), inputs,
                                                std::move(results));
  for (size_t i = 0; i < calls.size(); ++i) {
    Call& call = calls[i];
    all->add(begin(
        call, nullptr, [&] { return start_operation(call); },
        i + 1 == calls.size() ? all->profiling_end() : nullptr));
  }
  return all;
}

void Backend::startCoalescing() {
  const std::lock_guard<std::mutex> lock(mutex_);
  // Drops a collection that an exception left open in this thread. Its operations go on.
  coalescing_[std::this_thread::get_id()] =
      c10::make_intrusive<CoalescedWork>(rank_, ::c10d::OpType::COALESCED, nullptr, TensorList());
  coalescing_threads_ = coalescing_.size();
}

Backend::Work Backend::endCoalescing() {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto open = coalescing_.extract(std::this_thread::get_id());
  TORCH_CHECK(!open.empty(), "braid: endCoalescing() without startCoalescing() in this thread");
  coalescing_threads_ = coalescing_.size();
  return std::move(open.mapped());
}

void Backend::registerOnCompletionHook(CompletionHook::Hook&& hook) {
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!hook_, "braid: this group has a completion hook already; there can be one");
  onCompletionHook_ = hook;  // for hasHooks()
  hook_ = std::make_shared<CompletionHook>(std::move(hook));
}

std::shared_ptr<CompletionHook> Backend::completion_hook() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return hook_;
}

void Backend::waitForPendingWorks() {
  const auto hook = completion_hook();
  const WithoutGil without_gil;
  if (hook) hook->wait();
}

}  // namespace braid::adapter

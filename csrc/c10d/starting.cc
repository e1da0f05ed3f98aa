// SPDX-License-Identifier: Apache-2.0
// Starts operations on a backend: in the communicator at once, or through the courier.
#include <ATen/record_function.h>

#include <algorithm>
#include <utility>

#include "c10d/backend.h"
#include "c10d/copied.h"
#include "c10d/gil.h"
#include "c10d/mutations.h"
#include "c10d/packed.h"
#include "communicator/process.h"

namespace braid::adapter {
namespace {

// Starts an operation in the communicator: a message or a collective, by its type. A waiting thread must check for
// signals. So it hands a collective that takes longer than kLookUpEvery to the progress thread.
Result<std::shared_ptr<braid::Work>> start_in(Communicator& group, ::c10d::OpType type, Operation operation,
                                              int peer, const Message& message, bool inline_if_idle) {
  if (type == ::c10d::OpType::SEND) return group.send(peer, message.tag, message.sent, milliseconds(0));
  if (::c10d::isP2POp(type)) return group.recv(peer, message.tag, message.received, milliseconds(0));
  operation.inline_for = kLookUpEvery;
  return group.start(std::move(operation), inline_if_idle);
}

// Puts the addresses of memory in the place of those that stand for it.
void put_in_memory(Operation& operation, Message& message, const Staging& staging) {
  for (ConstBytes& block : operation.inputs) block = staging.actual(block);
  for (Bytes& block : operation.outputs) block = staging.actual(block);
  message.sent = staging.actual(message.sent);
  message.received = staging.actual(message.received);
  if (!operation.lossy || operation.lossy->residual == nullptr) return;
  const auto* residual = reinterpret_cast<const std::byte*>(operation.lossy->residual);
  operation.lossy->residual = reinterpret_cast<float*>(staging.actual({residual, sizeof(float)}).data());
}

}  // namespace

bool Backend::is_for_courier(const Call& call) const {
  const bool is_barrier = call.type == ::c10d::OpType::BARRIER;
  if (mutated(Mutation::kBarrierPassesQueue) && is_barrier) return false;
  if (call.tensors.staging()) return true;
  if (mutated(Mutation::kSequenceTakenLate) && !is_barrier) return false;
  return courier_->is_busy();
}

Result<std::shared_ptr<braid::Work>> Backend::give_to_courier(Call& call, std::shared_ptr<Staging> staging,
                                                              uint64_t sequence, std::optional<uint64_t> record) {
  Parcel parcel{call.name, sequence, !::c10d::isP2POp(call.type), staging};
  parcel.submit =
      [type = call.type, operation = std::move(call.operation), peer = call.peer, message = call.message,
       staging = std::move(staging)](Communicator& group) mutable -> Result<std::shared_ptr<braid::Work>> {
    if (staging && !staging->holds_memory()) return group.failure();
    if (staging) put_in_memory(operation, message, *staging);
    return start_in(group, type, std::move(operation), peer, message, false);
  };
  if (record) {
    parcel.started = [&recorder = of_this_process<Recorder>(), id = *record](const auto& work) {
      recorder.follow(id, work);
    };
  }
  return courier_->add(std::move(parcel));
}

void Backend::wait_for_courier() {
  if (!courier_->is_busy()) return;
  Interrupts interrupts;
  static_cast<void>(courier_->wait_until_idle(kNoDeadline, interrupts.give_up()));
  throw_if_any(interrupts);
}

// Begins the copies of a call's tensors from the device to the host, behind what the local leg has launched.
void Backend::stage(Call& call, Staging& staging) {
  const bool is_message = ::c10d::isP2POp(call.type);
  of_this_process<CopiedBytes>().add(config_.group_id, staging.bytes_down(), staging.bytes_up());
  if (leg_) leg_->block(*courier_->streams(staging.device(), is_message));
  courier_->stage(staging, is_message ? nullptr : &call.operation, call.name);
}

uint64_t Backend::next_sequence(bool is_message, bool by_courier) {
  if (is_message) return ++messages_;
  return by_courier ? courier_->next_sequence() : group_->sequence() + 1;
}

c10::intrusive_ptr<adapter::Work> Backend::begin(Call& call, const char* title, std::function<void()> at_end) {
  const bool is_message = ::c10d::isP2POp(call.type);
  Communicator& communicator = group();
  const bool by_courier = is_for_courier(call);
  std::shared_ptr<Staging> staging = call.tensors.staging();
  const bool on_host = !staging && !is_message;
  if (by_courier) raise_if_failed(communicator.failure(), *members_);  // before copies begin
  if (staging) note_device_call(staging->device());
  if (by_courier && staging) stage(call, *staging);
  const uint64_t sequence = next_sequence(is_message, by_courier);
  std::optional<CommsRecord> comms;
  if (at::hasCallbacks()) {
    comms.emplace(ProfiledGroup{pg_uid_, pg_desc_, rank_, size_, config_.global_ranks}, call, sequence);
  }
  const std::optional<uint64_t> record = note(of_this_process<Recorder>(), call, sequence);
  auto work = c10::make_intrusive<adapter::Work>(call.type, title, call.inputs, std::move(call.tensors), members_);
  if (at_end) work->also([at_end = std::move(at_end)](const Status&) { at_end(); });
  const std::shared_ptr<CompletionHook> hook = completion_hook();

  auto started = by_courier ? give_to_courier(call, std::move(staging), sequence, record)
                            : start_in(communicator, call.type, std::move(call.operation), call.peer, call.message,
                                       !call.asynchronous);
  if (!started.ok() && record) of_this_process<Recorder>().ended(*record, false, kAnyNode);
  raise_if_failed(started.status(), *members_);
  if (record) record_end(*record, *work, started.value(), by_courier);
  if (hook) tell_at_end(hook, *work, call.type, started.value());
  follow(work, std::move(started).value(), call, on_host);
  return work;
}

void Backend::record_end(uint64_t record, adapter::Work& work, const std::shared_ptr<braid::Work>& started,
                         bool by_courier) {
  Recorder& recorder = of_this_process<Recorder>();
  if (started->done()) return recorder.ended(record, started->status().ok(), started->source());
  if (!by_courier) recorder.follow(record, started);  // the courier does so when it starts
  work.also([&recorder, record, started](const Status& status) {
    recorder.ended(record, status.ok(), started->source());
  });
}

void Backend::tell_at_end(const std::shared_ptr<CompletionHook>& hook, adapter::Work& work, ::c10d::OpType type,
                          const std::shared_ptr<braid::Work>& started) {
  hook->started();
  work.also([hook, type, started](const Status&) {
    const auto begun = started->started_at();
    const auto duration = started->duration();
    hook->ended(std::make_shared<::c10d::WorkInfo>(type, started->sequence(), begun, begun + duration, duration));
  });
}

// Lets the work of torch end with that of the communicator. The local leg, and a caller that coalesces, know it.
void Backend::follow(const c10::intrusive_ptr<adapter::Work>& work, std::shared_ptr<braid::Work> started,
                     const Call& call, bool on_host) {
  const auto flat = leg_ && on_host && !started->done() ? leg_->flat_works() : nullptr;
  const uint64_t id = flat ? flat->next_id() : 0;
  if (flat) work->also([flat, id](const Status&) { flat->remove(id); });
  work->follow(std::move(started), group_);
  if (flat) flat->add(id, work, Reach(call.inputs, work->result()));
  if (flat && work->isCompleted()) flat->remove(id);  // perhaps it ended before it was added
  if (coalescing_threads_ == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto open = coalescing_.find(std::this_thread::get_id());
  if (open != coalescing_.end()) open->second->add(work);
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

std::string Backend::title_of(const char* call) const {
  return at::hasCallbacks() ? config_.known_as + ":" + call : "";
}

Backend::Work Backend::start(Call call) {
  const WithoutGil without_gil;
  const std::string title = title_of(call.name);
  return begin(call, title.empty() ? nullptr : title.c_str());
}

Backend::Work Backend::start_all(::c10d::OpType type, std::vector<Call> calls) {
  const WithoutGil without_gil;
  TensorList inputs, results;
  for (const Call& call : calls) {
    inputs.insert(inputs.end(), call.inputs.begin(), call.inputs.end());
    results.insert(results.end(), call.tensors.results().begin(), call.tensors.results().end());
  }
  const bool staged = std::any_of(calls.begin(), calls.end(), [](const Call& call) {
    return call.tensors.staging() != nullptr;  // its values are not on the host yet
  });
  if (!staged) calls = packed(std::move(calls), rank_, group().is_on_several_hosts());
  if (calls.size() == 1) return start(std::move(calls.front()));
  const std::string title = calls.empty() ? "" : title_of(calls.front().name);
  auto all = c10::make_intrusive<CoalescedWork>(rank_, type, title.empty() ? nullptr : title.c_str(), inputs,
                                                std::move(results));
  for (size_t i = 0; i < calls.size(); ++i) {
    Call& call = calls[i];
    all->add(begin(call, nullptr, i + 1 == calls.size() ? all->profiling_end() : nullptr));
  }
  return all;
}

}  // namespace braid::adapter

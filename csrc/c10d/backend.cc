// SPDX-License-Identifier: Apache-2.0
// Makes and ends a backend. Operations are started in starting.cc, collectives are in collectives.cc, messages in
// messages.cc, derived groups in derived.cc.
#include "c10d/backend.h"

#include <c10/core/CPUAllocator.h>

#include <utility>

#include "c10d/gil.h"
#include "c10d/store.h"
#include "communicator/process.h"

namespace braid::adapter {
namespace {

// How long the end of a group waits for accelerators that keep operations from starting.
constexpr milliseconds kPatienceAtEnd{5000};

}  // namespace

c10::intrusive_ptr<Backend> Backend::create(BackendConfig config) {
  const WithoutGil without_gil;
  const auto& [store, rank, size, timeout, group_id, global_ranks, known_as, servers, stated, also_equal, copies] =
      config;
  const Members members{rank, global_ranks};
  TORCH_CHECK_VALUE(size > 0 && rank >= 0 && rank < size, "braid: rank ", rank, " is none of a group of ", size);
  auto options = options_from_env();
  raise_if_failed(options.status(), members);
  const auto copy_settings = copy_settings_from_env();
  raise_if_failed(copy_settings.status(), members);
  options.value().timeout = timeout;
  if (servers) options.value().servers = std::make_shared<C10dStore>(servers);
  options.value().stated = stated;
  options.value().also_equal = also_equal;
  Interrupts interrupts;
  options.value().give_up = interrupts.give_up();
  const auto rendezvous_store = std::make_shared<C10dStore>(store, interrupts.give_up());
  auto group = make_group(rendezvous_store, rank, size, group_id, options.value());
  if (interrupts.any() && group.ok()) end_group(std::move(group).value());
  throw_if_any(interrupts);
  raise_if_failed(group.status(), members);
  config.copies = copy_settings.value();
  return c10::make_intrusive<Backend>(std::move(group).value(), std::move(config));
}

Backend::Backend(std::shared_ptr<Communicator> group, BackendConfig config)
    : ::c10d::Backend(group->rank(), group->ranks()),
      made_under_(fork_count()),
      group_(std::move(group)),
      config_(std::move(config)),
      members_(std::make_shared<const Members>(rank_, config_.global_ranks)),
      courier_(Courier::make(group_, config_.copies)),
      timeout_(config_.timeout) {
  init();
  setGroupUid(config_.group_id);  // torch names its own groups once more, but not those of a local leg
}

Backend::~Backend() {
  if (made_under_ == fork_count()) {
    const WithoutGil without_gil;
    Interrupts interrupts;  // keeps exceptions of signal handlers for later: a destructor must not throw
    leg_.reset();
    static_cast<void>(courier_->wait_until_idle(deadline_after(kPatienceAtEnd), interrupts.give_up()));
    group_->shutdown(interrupts.give_up());
    courier_.reset();  // it holds the group, and end_group() waits for whoever does
    end_group(std::move(group_), interrupts.give_up());
  } else {
    abandon(std::move(leg_));
    abandon(std::move(courier_));
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
  const WithoutGil without_gil;  // a call by the leg may hold its lock, and wait for the GIL
  group().set_timeout(timeout);
  if (leg_) leg_->set_timeout(timeout);
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
  if (leg_) leg_->shutdown();
  static_cast<void>(courier_->wait_until_idle(deadline_after(kPatienceAtEnd), interrupts.give_up()));
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

uint64_t Backend::getSequenceNumberForGroup() {
  static_cast<void>(group());  // throws in a forked child
  return courier_->sequence();
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  return at::empty({size}, options.device(at::kCPU));
}

std::shared_ptr<c10::Allocator> Backend::getMemAllocator() {
  return {c10::GetCPUAllocator(), [](c10::Allocator*) {}};  // lives as long as the process
}

void Backend::use_local_leg(LegConfig config) {
  static_cast<void>(group());  // throws in a forked child
  leg_ = std::make_shared<LocalLeg>(std::move(config), group_, courier_, members_);
}

LegChoice Backend::leg_choice(const std::string& operation, int64_t bytes, const std::string& dtype,
                              const std::string& op, c10::DeviceType device) const {
  if (leg_) return leg_->choice(operation, bytes, dtype, op, device);
  const std::lock_guard<std::mutex> lock(mutex_);
  return {false, why_no_leg_};
}

void Backend::say_why_no_leg(std::string why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  why_no_leg_ = std::move(why);
}

void Backend::at_first_device_call(std::function<void(int)> call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  at_first_device_call_ = std::move(call);
  awaits_device_call_ = true;
}

void Backend::note_device_call(c10::Device device) {
  if (!awaits_device_call_.exchange(false)) return;
  const auto call = [this] {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(at_first_device_call_, nullptr);
  }();
  call(device.index());
}

LocalLeg* Backend::leg() {
  if (!leg_) return nullptr;
  static_cast<void>(group());
  if (coalescing_threads_ == 0) return leg_.get();
  const std::lock_guard<std::mutex> lock(mutex_);
  return coalescing_.count(std::this_thread::get_id()) > 0 ? nullptr : leg_.get();
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

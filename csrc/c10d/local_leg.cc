// SPDX-License-Identifier: Apache-2.0
// How the local leg launches collectives, and how it fails. The collectives are in leg_calls.cc.
#include "c10d/local_leg.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <map>

#include "base/caught.h"
#include "c10d/backend.h"
#include "c10d/device.h"
#include "c10d/gil.h"
#include "c10d/mutations.h"

namespace braid::adapter {
namespace {

constexpr milliseconds kWatchEvery{100};

// Some backends cannot be aborted, or are gone already. Nothing more can be done for them.
template <class Body>
void try_to(const char* doing, Body&& body) {
  static_cast<void>(caught(doing, std::forward<Body>(body)));
}

}  // namespace

bool carries(const LegConfig& config, c10::DeviceType type) {
  return std::find(config.devices.begin(), config.devices.end(), type) != config.devices.end();
}

LocalLeg::LocalLeg(LegConfig config, std::shared_ptr<Communicator> flat, std::shared_ptr<Courier> courier,
                   std::shared_ptr<const Members> members)
    : config_(std::move(config)),
      flat_(std::move(flat)),
      courier_(std::move(courier)),
      flat_works_(carries(config_, at::kCPU) ? std::make_shared<FlatWorks>() : nullptr),
      members_(std::move(members)) {
  std::map<int, int> seen;
  for (const int host : config_.hosts) places_.push_back(seen[host]++);
  by_host_ = std::is_sorted(config_.hosts.begin(), config_.hosts.end());
  watcher_ = std::thread([this] { watch(); });
}

LocalLeg::~LocalLeg() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  watcher_.join();
}

void LocalLeg::shutdown() {
  const std::lock_guard<std::mutex> lock(launching_);
  if (config_.local) try_to("shutting down the local leg", [this] { config_.local->shutdown(); });
  if (config_.across) try_to("shutting down the leg between hosts", [this] { config_.across->shutdown(); });
}

void LocalLeg::set_timeout(milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(launching_);
  if (config_.local) try_to("setting the timeout of the local leg", [&] { config_.local->setTimeout(timeout); });
  if (config_.across) config_.across->setTimeout(timeout);
}

// If another rank fails, this rank may wait in a leg for a rank that waits for the failed one.
void LocalLeg::watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ending_) {
    changed_.wait_for(lock, kWatchEvery);
    const Status failure = ending_ ? Status() : flat_->failure();
    if (failure.ok()) continue;
    lock.unlock();
    abort_legs(failure.message());
    // Gloo cannot be aborted. Without the backend its connections are closed, which neighbours notice. A call under
    // way still needs it; that call fails by itself, and releases it.
    const std::unique_lock<std::mutex> idle(launching_, std::try_to_lock);
    if (idle) drop_local();
    return;
  }
}

void LocalLeg::drop_local() {
  c10::intrusive_ptr<::c10d::Backend> dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::swap(dropped, config_.local);
}

void LocalLeg::abort_legs(const std::string& why) {
  if (config_.across) {
    try_to("aborting the leg between hosts", [&] { static_cast<Backend&>(*config_.across).abort(why); });
  }
  const auto local = [this] {
    const std::lock_guard<std::mutex> lock(mutex_);
    return config_.local;
  }();
  if (local) try_to("aborting the local leg", [&] { local->abort(); });
}

void LocalLeg::fail(const char* operation, const std::string& why) {
  flat_->abort(std::string(operation) + " by the local leg " + config_.name + " failed: " + why);
  abort_legs(why);
  drop_local();
  raise_if_failed(flat_->failure(), *members_);
  TORCH_CHECK(false, "braid ", operation, ": ", why);
}

bool LocalLeg::takes(const at::Tensor& tensor) const {
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_nested() || tensor.numel() == 0)
    return false;
  return carries(config_, tensor.device().type());
}

c10::Stream LocalLeg::stream_of(c10::Device device) {
  for (const auto& [known, stream] : streams_) {
    if (known == device) return stream;
  }
  const c10::Stream made = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  streams_.emplace_back(device, made);
  return made;
}

void LocalLeg::block(const CopyStreams& streams) {
  const std::lock_guard<std::mutex> lock(launching_);
  for (const auto& memory : launched_) {
    memory->block(streams.down);
    memory->block(streams.up);
  }
}

std::vector<at::Tensor> LocalLeg::Call::changed() const {
  std::vector<at::Tensor> all = results;
  all.insert(all.end(), residuals.begin(), residuals.end());
  return all;
}

LocalLeg::Work LocalLeg::run(const Call& call, const std::function<void()>& body) {
  const WithoutGil without_gil;
  const std::lock_guard<std::mutex> lock(launching_);
  raise_if_failed(flat_->failure(), *members_);
  while (!launched_.empty() && launched_.front()->landed()) launched_.pop_front();
  std::vector<at::Tensor> kept = call.changed();
  kept.insert(kept.end(), call.inputs.begin(), call.inputs.end());
  auto memory = std::make_shared<LegMemory>(kept);
  auto work =
      c10::make_intrusive<LegWork>(members_->rank, call.type, call.title.empty() ? nullptr : call.title.c_str(),
                                   call.inputs, call.results, memory);
  try {
    launch(call, *memory, body);
  } catch (const c10::Error& error) {
    abandoned_.insert(abandoned_.end(), kept.begin(), kept.end());
    fail(call.name, error.what_without_backtrace());
  } catch (const py::error_already_set&) {
    flat_->abort(std::string(call.name) + " by the local leg was interrupted");
    abort_legs("it was interrupted");
    drop_local();
    throw;
  } catch (const std::exception& error) {
    abandoned_.insert(abandoned_.end(), kept.begin(), kept.end());
    fail(call.name, error.what());
  }
  if (memory->stream()) launched_.push_back(std::move(memory));
  work->launched();
  return work;
}

void LocalLeg::launch(const Call& call, LegMemory& memory, const std::function<void()>& body) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::Device device = call.results.front().device();
  if (device.is_cpu()) {
    come_after_flat(call, std::nullopt);
    body();
    return;
  }
  const c10::Stream callers = callers_stream(device, call.name);
  const c10::Stream stream = stream_of(device);
  c10::Event ready(device.type());
  ready.record(callers);
  if (!mutated(Mutation::kLegPassesCaller)) ready.block(stream);
  come_after_flat(call, stream);
  const c10::StreamGuard guard(stream);
  body();
  c10::Event done(device.type());
  done.record(stream);
  memory.ends_with(std::move(done), stream);
}

void LocalLeg::come_after_flat(const Call& call, std::optional<c10::Stream> stream) {
  if (mutated(Mutation::kLegPassesFlat)) return;
  const Reach reach(call.inputs, call.changed());
  if (stream) {
    Interrupts interrupts;
    static_cast<void>(courier_->order(reach, *stream, interrupts.give_up()));
    throw_if_any(interrupts);
    return;
  }
  for (const FlatWorks::Work& work : flat_works_->that_meet(reach)) work->wait();
}

void LocalLeg::join(const std::vector<Work>& works) {
  for (const Work& work : works) work->wait();
}

Steps LocalLeg::joining(const Work& work) {
  return {[work] { join(work); }};
}

}  // namespace braid::adapter

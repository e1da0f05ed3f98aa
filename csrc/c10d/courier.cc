// SPDX-License-Identifier: Apache-2.0
#include "c10d/courier.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/caught.h"
#include "base/log.h"
#include "c10d/flags.h"
#include "communicator/process.h"

namespace braid::adapter {
namespace {

using std::chrono::microseconds;

// How long the courier sleeps before it asks a device again: short at first, for small operations.
constexpr microseconds kShortest{10};
constexpr microseconds kLongest{200};
// How long the end of a group waits for a device that does not answer.
constexpr milliseconds kPatienceOfCourier{5000};

struct AllCouriers {
  std::mutex mutex;
  std::vector<std::weak_ptr<Courier>> couriers;
};

}  // namespace

std::shared_ptr<Courier> Courier::make(std::shared_ptr<Communicator> group, const CopySettings& settings) {
  auto courier = std::make_shared<Courier>(std::move(group), settings);
  auto& all = of_this_process<AllCouriers>();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::erase_if(all.couriers, [](const auto& one) { return one.expired(); });
  all.couriers.push_back(courier);
  return courier;
}

void Courier::end_all() {
  auto& all = of_this_process<AllCouriers>();
  std::vector<std::weak_ptr<Courier>> couriers;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    couriers.swap(all.couriers);
  }
  for (const auto& one : couriers) {
    if (const auto courier = one.lock()) courier->end();
  }
}

void Courier::end() {
  std::thread thread;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_until_ = deadline_after(kPatienceOfCourier);
    changed_.notify_all();
    thread.swap(thread_);
  }
  if (thread.joinable()) thread.join();
}

void Courier::stage(Staging& staging, Operation* operation, const char* name) {
  std::vector<std::shared_ptr<const Staging>> writers;
  bool gated = false;
  if (operation == nullptr) {
    staging.hold(0);
  } else {
    const size_t bytes = staging.bytes();
    at::Tensor memory;
    bool takes = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!reserve_ && has_flags(staging.device().type()))
        reserve_ = std::make_shared<Reserve>(staging.device(), settings_.pinned_bytes);
      takes = without_memory_ == 0 && takes_memory(bytes, memory);
      if (!takes) ++without_memory_;
      gated = ungated_ == 0 && memory.defined() && staging.can_be_gated();
      if (!gated && staging.has_outputs()) ++ungated_;
    }
    if (takes) staging.hold(bytes, memory);
    staging.cut(*operation, settings_.piece_bytes, [this] {
      const std::lock_guard<std::mutex> lock(mutex_);
      settled_ = true;
      changed_.notify_all();
    });
    writers = writers_before(staging);
  }
  staging.start(streams(staging.device(), operation == nullptr), name, std::move(writers), gated);
  if (!gated || staging.is_gated()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  ++ungated_;  // the device has refused
}

std::shared_ptr<braid::Work> Courier::add(Parcel parcel) {
  auto flight = std::make_shared<Flight>();
  const auto describe = [told = flight->told, name = std::string(parcel.name), sequence = parcel.sequence] {
    const std::lock_guard<std::mutex> lock(told->mutex);
    if (told->real) return told->real->what();
    return name + " #" + std::to_string(sequence) + " (waits for its tensors, or for an operation before it)";
  };
  flight->shown = std::make_shared<braid::Work>(describe, parcel.sequence);
  flight->parcel = std::move(parcel);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { run(); });
    ::pthread_setname_np(thread_.native_handle(), "braid-courier");
  }
  if (flight->parcel.is_collective && flight->parcel.staging) collectives_.push_back(flight->parcel.staging);
  queue_.push_back(flight);
  waiting_.fetch_add(1, std::memory_order_release);
  changed_.notify_all();
  return flight->shown;
}

Waited Courier::wait_until_idle(Deadline deadline, const GiveUp& give_up) {
  if (!is_busy()) return Waited::kDone;
  std::unique_lock<std::mutex> lock(mutex_);
  return wait_looking_up(changed_, lock, deadline, give_up, [this] { return !is_busy(); });
}

uint64_t Courier::next_sequence() {
  // While operations wait, the group has seen fewer than we have numbered. Otherwise it has seen all.
  const uint64_t next = sequence() + 1;
  last_sequence_ = next;
  return next;
}

uint64_t Courier::sequence() const { return std::max(last_sequence_.load(), group_->sequence()); }

std::vector<std::shared_ptr<const Staging>> Courier::writers_before(const Staging& reader) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<const Staging>> writers;
  for (const auto& earlier : collectives_) {
    if (earlier->writes_input_of(reader)) writers.push_back(earlier);
  }
  return writers;
}

Waited Courier::order(const Reach& reach, c10::Stream stream, const GiveUp& give_up) {
  std::vector<std::shared_ptr<const Staging>> before;
  std::unique_lock<std::mutex> lock(mutex_);
  for (const auto& earlier : collectives_) {
    if (earlier->device() == stream.device() && earlier->meets(reach)) before.push_back(earlier);
  }
  const auto have_ended = [&] {
    return std::all_of(before.begin(), before.end(), [](const auto& one) { return one->has_ended(); });
  };
  const Waited waited = wait_looking_up(changed_, lock, kNoDeadline, give_up, have_ended);
  lock.unlock();
  if (waited == Waited::kDone) {
    for (const auto& one : before) one->block(stream);
  }
  return waited;
}

std::shared_ptr<const CopyStreams> Courier::streams(c10::Device device, bool of_messages) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Streams& known : streams_) {
    if (known.device == device && known.of_messages == of_messages) return known.streams;
  }
  streams_.push_back({device, of_messages, std::make_shared<const CopyStreams>(device)});
  return streams_.back().streams;
}

void Courier::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  microseconds pause = kShortest;
  while (true) {
    settled_ = false;
    bool moved = send_settled_up(lock);
    moved = finish_ended(lock) || moved;
    moved = start_first(lock) || moved;
    moved = release_landed(lock) || moved;
    const bool closing = closing_until_ != kNoDeadline;
    if (closing && queue_.empty() && flying_ == 0 && Clock::now() >= closing_until_) {
      return abandon(std::move(landing_));
    }
    if (moved) {
      pause = kShortest;
    } else if (settled_) {
      continue;
    } else if (!ended_.empty() || !queue_.empty() || !landing_.empty()) {
      changed_.wait_for(lock, pause);
      pause = std::min(2 * pause, kLongest);
    } else if (closing && flying_ == 0) {
      return;
    } else {
      changed_.wait(lock);
    }
  }
}

bool Courier::start_first(std::unique_lock<std::mutex>& lock) {
  if (queue_.empty()) return false;
  const std::shared_ptr<Flight> flight = queue_.front();
  const std::shared_ptr<Staging> staging = flight->parcel.staging;
  at::Tensor memory;
  const bool takes = staging && !staging->holds_memory() && takes_memory(staging->bytes(), memory);
  if (takes) --without_memory_;
  lock.unlock();
  bool moved = takes;
  Status failed = group_->failure();
  if (staging && failed.ok()) {
    failed = caught("waiting for the tensors of an operation", [&] {
      if (takes) staging->hold(staging->bytes(), memory);
      moved = staging->take_in() || moved;
    });
    if (!failed.ok()) group_->abort(failed.message());  // other ranks wait for the operation
  }
  // In a failed group the operation is refused, whether its inputs are there or not.
  const bool starts = !flight->real && (!staging || staging->has_first() || !failed.ok());
  const bool is_in = !staging || staging->has_all() || !failed.ok();
  if (starts) launch(flight);
  lock.lock();
  if (starts) waiting_.fetch_sub(1, std::memory_order_release);
  if (is_in) queue_.pop_front();
  if (starts || is_in) changed_.notify_all();
  return moved || starts || is_in;
}

bool Courier::takes_memory(size_t bytes, at::Tensor& memory) {
  if (held_bytes_ > 0 && held_bytes_ + bytes > settings_.pinned_bytes) return false;
  if (reserve_) memory = reserve_->take(bytes);
  if (reserve_ && !memory.defined() && held_bytes_ > 0) return false;
  held_bytes_ += bytes;
  return true;
}

bool Courier::send_settled_up(std::unique_lock<std::mutex>& lock) {
  if (running_.empty()) return false;
  const std::shared_ptr<Flight> first = running_.front();  // an earlier operation writes first
  lock.unlock();
  bool moved = false;
  const Status failed =
      caught("copying results to their device", [&] { moved = first->parcel.staging->send_up(); });
  if (!failed.ok()) group_->abort(failed.message());
  lock.lock();
  return moved;
}

void Courier::launch(const std::shared_ptr<Flight>& flight) {
  Result<std::shared_ptr<braid::Work>> started = Status(Code::kInternal, "the operation was not started");
  const Status thrown = caught("starting an operation", [&] { started = flight->parcel.submit(*group_); });
  flight->parcel.submit = nullptr;
  if (!thrown.ok()) {
    group_->abort(thrown.message());
    started = thrown;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++flying_;
    if (flight->parcel.staging && flight->parcel.is_collective) running_.push_back(flight);
  }
  const auto end = [this, flight] {
    const std::lock_guard<std::mutex> lock(mutex_);
    --flying_;
    ended_.push_back(flight);
    changed_.notify_all();
  };
  if (!started.ok()) {
    flight->real = std::make_shared<braid::Work>([name = flight->parcel.name] { return std::string(name); },
                                                 flight->parcel.sequence);
    flight->real->finish(started.status());
    end();
    return;
  }
  flight->real = started.value();
  {
    const std::lock_guard<std::mutex> lock(flight->told->mutex);
    flight->told->real = flight->real;
  }
  if (flight->parcel.started) flight->parcel.started(flight->real);
  flight->real->on_done([end](const Status&) { end(); });
}

bool Courier::finish_ended(std::unique_lock<std::mutex>& lock) {
  if (ended_.empty()) return false;
  const std::shared_ptr<Flight> flight = ended_.front();
  const std::shared_ptr<Staging> staging = flight->parcel.staging;
  // An operation may end before all inputs have come, if this rank has nothing to do.
  if (staging && !staging->has_all() && flight->real->status().ok() && group_->failure().ok()) return false;
  if (staging && staging->is_gated() && !flight->real->status().ok() && !staging->is_down()) return false;
  ended_.pop_front();
  std::erase(running_, flight);
  if (staging) landing_.push_back(staging);
  lock.unlock();
  finish(*flight);
  lock.lock();
  changed_.notify_all();
  if (staging && flight->parcel.is_collective && !staging->is_gated() && staging->has_outputs()) --ungated_;
  return true;
}

void Courier::finish(Flight& flight) {
  Status status = flight.real->status();
  if (status.ok() && flight.parcel.staging && !flight.parcel.staging->has_all()) status = group_->failure();
  if (status.ok() && flight.parcel.staging) {
    status =
        caught("copying the results of an operation to their device", [&] { flight.parcel.staging->finish(); });
  }
  if (!status.ok() && flight.parcel.staging) flight.parcel.staging->give_up();
  flight.shown->set_source(flight.real->source());
  flight.shown->finish(status, flight.real->missing());
}

bool Courier::release_landed(std::unique_lock<std::mutex>& lock) {
  std::vector<std::shared_ptr<Staging>> landing;
  std::vector<std::shared_ptr<Staging>> gone;
  size_t freed = 0;
  landing.swap(landing_);
  if (landing.empty()) return false;
  lock.unlock();
  const auto landed = [&](const std::shared_ptr<Staging>& staging) {
    bool is_landed = true;  // an event that fails will not come
    const Status thrown = caught("asking for the end of a copy", [&] { is_landed = staging->landed(); });
    if (!thrown.ok()) log(LogLevel::kWarning, thrown.message());
    if (is_landed) freed += staging->counted_bytes();
    if (is_landed) staging->release();
    if (is_landed) gone.push_back(staging);
    return is_landed;
  };
  std::erase_if(landing, landed);
  lock.lock();
  held_bytes_ -= freed;
  landing_.insert(landing_.begin(), landing.begin(), landing.end());
  std::erase_if(collectives_,
                [&](const auto& one) { return std::find(gone.begin(), gone.end(), one) != gone.end(); });
  if (!gone.empty()) changed_.notify_all();
  return !gone.empty();
}

}  // namespace braid::adapter

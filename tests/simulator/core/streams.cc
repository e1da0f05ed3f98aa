// SPDX-License-Identifier: Apache-2.0
#include "core/streams.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace simulator {
namespace {

constexpr std::chrono::microseconds kAskAgainAfter{50};

std::atomic<bool> driver_is_locked{false};
std::mutex& driver_mutex = *new std::mutex;
std::mutex delays_mutex;
Delays delays;
std::mutex gates_mutex;
std::condition_variable gates_changed;
Gates gates;

struct Streams {
  std::mutex mutex;
  std::vector<Stream*> all;
};
Streams& streams() {
  static Streams& of_process = *new Streams;
  return of_process;
}

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

void set_delays(Delays wanted) {
  const std::lock_guard<std::mutex> lock(delays_mutex);
  delays = wanted;
}

void hold(Gates closed) {
  const std::lock_guard<std::mutex> lock(gates_mutex);
  gates = closed;
  gates_changed.notify_all();
}

Stream& make_stream(bool is_default) {
  Streams& known = streams();
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.all.push_back(new Stream(is_default, static_cast<uint32_t>(known.all.size())));
  return *known.all.back();
}

void lock_driver(bool on) { driver_is_locked = on; }

std::unique_lock<std::mutex> driver_lock() {
  return driver_is_locked ? std::unique_lock(driver_mutex) : std::unique_lock<std::mutex>();
}

void drain_all() {
  std::vector<Stream*> all;
  {
    const std::lock_guard<std::mutex> lock(streams().mutex);
    all = streams().all;
  }
  for (Stream* stream : all) stream->drain();
}

Stream::Stream(bool is_default, uint32_t number) : is_default_(is_default), number_(number) {
  std::thread([this] { run(); }).detach();
}

uint64_t Stream::push(std::function<void()> job, bool delayed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  jobs_.emplace_back(std::move(job), delayed);
  changed_.notify_all();
  return ++pushed_;
}

void Stream::push_wait(std::function<bool()> is_met) {
  const auto wait = [is_met = std::move(is_met)] {
    while (!is_met()) std::this_thread::sleep_for(kAskAgainAfter);
  };
  push(wait, false);
}

bool Stream::has_run(uint64_t job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return finished_ >= job;
}

bool Stream::is_idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return finished_ == pushed_;
}

void Stream::wait_until(uint64_t job) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return finished_ >= job; });
}

void Stream::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t goal = pushed_;
  changed_.wait(lock, [&] { return finished_ >= goal; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

int64_t Stream::delay_us() {
  const std::lock_guard<std::mutex> lock(delays_mutex);
  int64_t us = is_default_ ? delays.on_default : delays.on_others;
  if (delays.random > 0) {
    if (delays.seed != seeded_with_) random_.seed(delays.seed * 64 + number_);
    seeded_with_ = delays.seed;
    const auto drawn = static_cast<uint32_t>(random_());
    if (drawn % 2 == 0) us += static_cast<int64_t>(drawn / 2) % delays.random;
  }
  return us;
}

void Stream::wait_for_the_gate() const {
  std::unique_lock<std::mutex> lock(gates_mutex);
  gates_changed.wait(lock, [this] { return is_default_ ? !gates.on_default : !gates.on_others; });
}

void Stream::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !jobs_.empty(); });
    auto [job, delayed] = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    if (delayed) wait_for_the_gate();
    if (const int64_t us = delayed ? delay_us() : 0; us > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(us));
    }
    std::exception_ptr thrown;
    try {
      job();
    } catch (...) {
      thrown = std::current_exception();
    }
    job = nullptr;
    lock.lock();
    if (thrown && !error_) error_ = thrown;
    ++finished_;
    changed_.notify_all();
  }
}

void Event::record(Stream& stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto reached = std::make_shared<std::atomic<int64_t>>(0);
  last_ = {&stream, stream.push([reached] { *reached = now_ns(); }, false), reached};
}

void Event::block(Stream& stream) {
  const Record record = last();
  if (record.stream != nullptr) stream.push([record] { record.stream->wait_until(record.job); }, false);
}

void Event::wait() {
  const Record record = last();
  if (record.stream != nullptr) record.stream->wait_until(record.job);
}

bool Event::is_reached() {
  const Record record = last();
  return record.stream == nullptr || record.stream->has_run(record.job);
}

int64_t Event::reached_ns() {
  const Record record = last();
  return record.reached_ns ? record.reached_ns->load() : 0;
}

Event::Record Event::last() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_;
}

}  // namespace simulator

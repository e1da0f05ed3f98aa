// SPDX-License-Identifier: Apache-2.0
// The streams of a simulated accelerator: one thread each, jobs in order, delays and gates on demand.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <random>

namespace simulator {

// Delays before each delayed job, in microseconds. `random` adds up to so much to half of them; `seed` chooses these.
struct Delays {
  int64_t on_default = 0;
  int64_t on_others = 0;
  int64_t random = 0;
  uint32_t seed = 0;
};
void set_delays(Delays delays);

// A gate holds all delayed jobs of a kind of stream, whatever the machine is busy with.
struct Gates {
  bool on_default = false;
  bool on_others = false;
};
void hold(Gates closed);

class Stream {
 public:
  // Runs the job in the stream's thread, after all earlier jobs. Events and waits are jobs without a delay. Returns the
  // job's number, from 1.
  uint64_t push(std::function<void()> job, bool delayed = true);
  // Later jobs wait until this is true. It is asked again and again.
  void push_wait(std::function<bool()> is_met);
  bool has_run(uint64_t job);
  bool is_idle();
  void wait_until(uint64_t job);
  // Waits until all jobs pushed so far have run. Throws the first error of a job.
  void drain();

  std::atomic<bool> capturing{
      false};  // of a graph. A flag only: code under test must refuse to work while it is set

 private:
  friend Stream& make_stream(bool is_default);
  Stream(bool is_default, uint32_t number);
  [[noreturn]] void run();
  int64_t delay_us();
  void wait_for_the_gate() const;

  const bool is_default_;
  const uint32_t number_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::function<void()>, bool>> jobs_;
  uint64_t pushed_ = 0;
  uint64_t finished_ = 0;
  std::exception_ptr error_;
  std::mt19937 random_;
  uint32_t seeded_with_ = 0;
};

// A driver's lock, once it is switched on. Who copies to memory that is not pinned holds it until the copy has ended.
// Meanwhile other threads cannot ask for events, or end them. Most likely the driver of an H100 has such a lock.
void lock_driver(bool on);
std::unique_lock<std::mutex> driver_lock();

// Streams are never destroyed, and their threads never end. Default streams do not wait for others, although CUDA's do:
// a missing wait shows sooner.
Stream& make_stream(bool is_default);
void drain_all();

// Whoever waits for an event waits for its last record at that time. Without a record it has been reached.
class Event {
 public:
  void record(Stream& stream);
  void block(Stream& stream);  // later jobs of the stream wait
  void wait();
  bool is_reached();
  int64_t reached_ns();  // on a steady clock; 0: not yet, or never recorded

 private:
  struct Record {
    Stream* stream = nullptr;
    uint64_t job = 0;
    std::shared_ptr<std::atomic<int64_t>> reached_ns;
  };
  Record last();

  std::mutex mutex_;
  Record last_;
};

}  // namespace simulator

// SPDX-License-Identifier: Apache-2.0
#include "copies.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace simulated {
namespace {

std::mutex mutex;
Rates rates;
std::string trace;
std::condition_variable grew;
DownGate gate;

// REQUIRES: `lock` holds the mutex.
void await_gate(std::unique_lock<std::mutex>& lock) {
  grew.wait_for(lock, gate.limit, [] {
    const auto copied = static_cast<size_t>(std::count(trace.begin(), trace.end(), 'd'));
    return copied < gate.first || trace.find('u') != std::string::npos;
  });
}

void copy(const at::Tensor& to, const at::Tensor& from, double Rates::* rate, char direction) {
  std::unique_lock<std::mutex> lock(mutex);
  if (direction == 'd') await_gate(lock);
  const double bytes_per_s = rates.*rate;
  lock.unlock();
  const auto began = std::chrono::steady_clock::now();
  to.copy_(from);
  if (bytes_per_s > 0) {
    const std::chrono::duration<double> whole(static_cast<double>(to.nbytes()) / bytes_per_s);
    std::this_thread::sleep_until(began + std::chrono::duration_cast<std::chrono::nanoseconds>(whole));
  }
  lock.lock();
  trace += direction;
  grew.notify_all();
}

}  // namespace

void set_rates(Rates wanted) {
  const std::lock_guard<std::mutex> lock(mutex);
  rates = wanted;
}

void set_down_gate(DownGate wanted) {
  const std::lock_guard<std::mutex> lock(mutex);
  gate = wanted;
}

void copy_down(const at::Tensor& to, const at::Tensor& from) { copy(to, from, &Rates::down, 'd'); }
void copy_up(const at::Tensor& to, const at::Tensor& from) { copy(to, from, &Rates::up, 'u'); }

size_t copies_done() {
  const std::lock_guard<std::mutex> lock(mutex);
  return trace.size();
}

std::string take_trace() {
  const std::lock_guard<std::mutex> lock(mutex);
  return std::exchange(trace, "");
}

}  // namespace simulated

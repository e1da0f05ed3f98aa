// SPDX-License-Identifier: Apache-2.0
#include "cuda/copies.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>

#include "cuda/inside.h"

namespace braid::cuda {
namespace {

constexpr size_t kLargeBytes = size_t{16} << 20;
constexpr size_t kSmallBytes = 8;
constexpr int kSmallTimes = 20, kLargeTimes = 4;

class Event {
 public:
  explicit Event(const Driver& driver) : driver_(driver) {
    status_ = driver.check("cuEventCreate", driver.make_event(&event_, kWithoutTiming));
  }
  // The driver keeps what it needs for streams that wait.
  ~Event() {
    if (event_ != nullptr) driver_.end_event(event_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  const Status& status() const { return status_; }
  CuEvent get() const { return event_; }

 private:
  const Driver& driver_;
  CuEvent event_ = nullptr;
  Status status_;
};

CuStream handle_of(Stream stream) { return reinterpret_cast<CuStream>(stream); }

}  // namespace

Result<Copies*> Copies::of_device(const Driver& driver, int ordinal) {
  static std::mutex mutex;
  static auto& made = *new std::map<std::pair<const Driver*, int>, std::unique_ptr<Copies>>;
  const std::lock_guard lock(mutex);
  auto& place = made[{&driver, ordinal}];
  if (!place) {
    auto fresh = make(driver, ordinal);
    if (!fresh.ok()) return fresh.status();
    place = std::move(fresh).value();
  }
  return place.get();
}

Result<std::unique_ptr<Copies>> Copies::make(const Driver& driver, int ordinal) {
  CuDevice device = 0;
  if (Status s = find(driver, ordinal, device); !s.ok()) return s;
  CuContext context = nullptr;
  if (Status s = driver.check("cuDevicePrimaryCtxRetain", driver.retain_context(&context, device)); !s.ok()) {
    return s;
  }
  const Inside inside(driver, context);
  if (!inside.status().ok()) return inside.status();
  std::unique_ptr<Copies> copies(new Copies(driver, context));
  for (CuStream* stream : {&copies->down_, &copies->up_}) {
    if (Status s = driver.check("cuStreamCreate", driver.make_stream(stream, kNonBlocking)); !s.ok()) return s;
  }
  return copies;
}

Result<int> Copies::device_of(const Driver& driver, CuAddress address) {
  int device = -1;
  const Status s =
      driver.check("cuPointerGetAttribute", driver.pointer_attribute(&device, kPointerDevice, address));
  if (!s.ok()) return Status(Code::kInvalidArgument, "the driver knows no such memory: " + s.message());
  return device;
}

Stream Copies::stream(Way way) const { return reinterpret_cast<Stream>(way == Way::kDown ? down_ : up_); }

Status Copies::follow(Way way, Stream theirs) const {
  const Inside inside(driver_, context_);
  if (!inside.status().ok()) return inside.status();
  int capturing = 0;
  if (Status s = driver_.check("cuStreamIsCapturing", driver_.is_capturing(handle_of(theirs), &capturing));
      !s.ok()) {
    return s;
  }
  if (capturing != 0) {
    return {
        Code::kUnsupported,
        "the stream is capturing a graph, but a graph cannot hold operations that go through the host; call it "
        "outside the capture"};
  }
  const Event event(driver_);
  if (!event.status().ok()) return event.status();
  if (Status s = driver_.check("cuEventRecord", driver_.record_event(event.get(), handle_of(theirs))); !s.ok()) {
    return s;
  }
  return driver_.check("cuStreamWaitEvent", driver_.stream_waits(handle_of(stream(way)), event.get(), 0));
}

Status Copies::finish_all() const {
  const Inside inside(driver_, context_);
  if (!inside.status().ok()) return inside.status();
  return driver_.check("cuCtxSynchronize", driver_.finish_context());
}

Status Copies::copy_down(void* host, CuAddress from, size_t bytes) const {
  const Inside inside(driver_, context_);
  if (!inside.status().ok()) return inside.status();
  if (Status s = driver_.check("cuMemcpyDtoHAsync", driver_.copy_down(host, from, bytes, down_)); !s.ok())
    return s;
  return driver_.check("the copy to the host", driver_.finish_stream(down_));
}

Status Copies::copy_up(CuAddress to, const void* host, size_t bytes) const {
  const Inside inside(driver_, context_);
  if (!inside.status().ok()) return inside.status();
  if (Status s = driver_.check("cuMemcpyHtoDAsync", driver_.copy_up(to, host, bytes, up_)); !s.ok()) return s;
  return driver_.check("the copy to the device", driver_.finish_stream(up_));
}

Result<CopyTimes> Copies::measure(Way way, void* host, CuAddress device) const {
  // The least of several: other work on the bus only adds to a time.
  const auto least_s = [&](size_t bytes, int times) -> Result<double> {
    double least = 1e9;
    for (int i = 0; i <= times; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const Status s = way == Way::kDown ? copy_down(host, device, bytes) : copy_up(device, host, bytes);
      if (!s.ok()) return s;
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      if (i > 0) least = std::min(least, took.count());  // the first one warms up
    }
    return least;
  };
  const auto small = least_s(kSmallBytes, kSmallTimes);
  if (!small.ok()) return small.status();
  const auto large = least_s(kLargeBytes, kLargeTimes);
  if (!large.ok()) return large.status();
  const double more_s = std::max(large.value() - small.value(), 0.0);
  return CopyTimes{small.value(), more_s / static_cast<double>(kLargeBytes - kSmallBytes)};
}

Result<CopyRates> Copies::rates() {
  const std::lock_guard lock(measuring_);
  if (rates_) return *rates_;
  const Inside inside(driver_, context_);
  if (!inside.status().ok()) return inside.status();
  const auto host = pinned_.take(kLargeBytes);
  if (!host.ok()) return host.status();
  CuAddress device = 0;
  if (Status s = driver_.check("cuMemAlloc", driver_.take_memory(&device, kLargeBytes)); !s.ok()) {
    pinned_.give_back(host.value(), kLargeBytes);
    return s;
  }
  const auto down = measure(Way::kDown, host.value(), device);
  const auto up = measure(Way::kUp, host.value(), device);
  driver_.free_memory(device);
  pinned_.give_back(host.value(), kLargeBytes);
  if (!down.ok()) return down.status();
  if (!up.ok()) return up.status();
  rates_ = CopyRates{down.value(), up.value()};
  return *rates_;
}

}  // namespace braid::cuda

// SPDX-License-Identifier: Apache-2.0
// What torch asks of every device: its guard with streams and events, and its hooks.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>

#include "allocators.h"
#include "current_stream.h"

namespace simulated {
namespace {

using simulator::Event;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return stream_of(current_id()); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_of(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream_of(stream_from_pool()); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream_of(new_stream()); }
  c10::Stream exchangeStream(c10::Stream other) const override {
    return stream_of(exchange_current_id(other.id()));
  }
  bool queryStream(const c10::Stream& asked) const override { return stream(asked.id()).is_idle(); }
  void synchronizeStream(const c10::Stream& asked) const override { stream(asked.id()).drain(); }
  void synchronizeDevice(c10::DeviceIndex) const override { simulator::drain_all(); }
  bool isStreamCapturing(const c10::Stream& asked) const override { return stream(asked.id()).capturing; }

  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    const auto lock = simulator::driver_lock();
    delete static_cast<Event*>(event);
  }
  void record(void** event, const c10::Stream& on, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    static_cast<Event*>(*event)->record(stream(on.id()));
  }
  void block(void* event, const c10::Stream& blocked) const override {
    if (event != nullptr) static_cast<Event*>(event)->block(stream(blocked.id()));
  }
  bool queryEvent(void* event) const override {
    const auto lock = simulator::driver_lock();
    return event == nullptr || static_cast<Event*>(event)->is_reached();
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) static_cast<Event*>(event)->wait();
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    return 1e-6 *
           static_cast<double>(static_cast<Event*>(to)->reached_ns() - static_cast<Event*>(from)->reached_ns());
  }
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& on) const override {
    device_allocator().recordStream(pointer, on);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &host_allocator(); }
  at::Device getDeviceFromPtr(void*) const override { return device(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    at::DataPtr fresh = device_allocator().allocate(bytes);
    if (const size_t kept = std::min(bytes, storage.nbytes()); kept > 0) {
      device_allocator().copy_data(fresh.get(), storage.data(), kept);
    }
    storage.set_data_ptr_noswap(std::move(fresh));
    storage.set_nbytes(bytes);
  }
};

}  // namespace

void register_guard_and_hooks() {
  c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kPrivateUse1)].store(new Guard);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::SetAllocator(c10::kPrivateUse1, &device_allocator());
  at::setHostAllocator(c10::kPrivateUse1, &host_allocator());
}

}  // namespace simulated

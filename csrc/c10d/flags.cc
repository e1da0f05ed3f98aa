// SPDX-License-Identifier: Apache-2.0
#include "c10d/flags.h"

#include <array>
#include <atomic>

#include "base/env.h"
#include "cuda/flags.h"

namespace braid::adapter {
namespace {

bool wait_on_cuda(int64_t, void* native, const uint32_t* word, uint32_t value) {
  return native != nullptr && cuda::wait_for_flag(native, word, value);
}

bool write_on_cuda(int64_t, void* native, uint32_t* word, uint32_t value) {
  return native != nullptr && cuda::write_flag(native, word, value);
}

struct Offered {
  std::atomic<decltype(Flags::wait)> wait;
  std::atomic<decltype(Flags::write)> write;
};

Offered& offered_by(c10::DeviceType type) {
  static std::array<Offered, c10::COMPILE_TIME_MAX_DEVICE_TYPES> all{};
  return all.at(static_cast<size_t>(type));
}

// Older releases of torch cannot tell.
template <class AnyStream>
void* native_handle(const AnyStream& stream) {
  if constexpr (requires { stream.native_handle(); }) {
    return stream.device_type() == c10::kCUDA ? stream.native_handle() : nullptr;
  } else {
    return nullptr;
  }
}

bool is_wanted() {
  static const bool wanted = env_string("BRAID_STREAM_WAITS") == "1";
  return wanted;
}

}  // namespace

void offer_flags(c10::DeviceType type, Flags flags) {
  offered_by(type).write = flags.write;
  offered_by(type).wait = flags.wait;
}

bool has_flags(c10::DeviceType type) {
  if (!is_wanted()) return false;
  if (type == c10::kCUDA && offered_by(type).wait == nullptr && cuda::has_flags())
    offer_flags(type, {&wait_on_cuda, &write_on_cuda});
  return offered_by(type).wait != nullptr;
}

bool wait_for_flag(const c10::Stream& stream, const uint32_t* word, uint32_t value) {
  return offered_by(stream.device_type()).wait.load()(stream.id(), native_handle(stream), word, value);
}

bool write_flag(const c10::Stream& stream, uint32_t* word, uint32_t value) {
  return offered_by(stream.device_type()).write.load()(stream.id(), native_handle(stream), word, value);
}

}  // namespace braid::adapter

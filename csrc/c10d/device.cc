// SPDX-License-Identifier: Apache-2.0
#include "c10d/device.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdint>

#include "base/env.h"

namespace braid::adapter {
namespace {

using Guard = c10::impl::VirtualGuardImpl;

// Older releases of torch cannot tell.
template <class AnyGuard>
bool captures_graph(const AnyGuard& guard, const c10::Stream& stream) {
  if constexpr (requires { guard.isStreamCapturing(stream); }) {
    return guard.isStreamCapturing(stream);
  } else {
    return false;
  }
}

// torch's errors go on with advice for developers.
std::string first_line_of(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Result<CopySettings> copy_settings_from_env() {
  CopySettings settings;
  const auto piece =
      env_integer("BRAID_PIECE_BYTES", static_cast<int64_t>(settings.piece_bytes), 64, int64_t{1} << 40);
  if (!piece.ok()) return piece.status();
  settings.piece_bytes = static_cast<size_t>(piece.value());
  const auto pinned =
      env_integer("BRAID_PINNED_BYTES", static_cast<int64_t>(settings.pinned_bytes), 0, int64_t{1} << 40);
  if (!pinned.ok()) return pinned.status();
  settings.pinned_bytes = static_cast<size_t>(pinned.value());
  return settings;
}

std::string why_no_path(c10::Device device) {
  static std::atomic<uint64_t> usable{0};  // a bit per type of device
  const c10::DeviceType type = device.type();
  const uint64_t bit = uint64_t{1} << static_cast<unsigned>(type);
  if (type == c10::kCPU || (usable.load() & bit) != 0) return "";
  if (type == c10::kMeta) return "tensors there have no values";
  if (!c10::impl::hasDeviceGuardImpl(type)) return "this torch has no streams for it";
  if (Guard(type).deviceCount() == 0) return "torch finds no such device on this machine";
  try {
    static_cast<void>(Guard(type).getStreamFromGlobalPool(with_index(device)));
    static_cast<void>(at::getHostAllocator(type));
  } catch (const c10::Error& error) {
    return first_line_of(error.what_without_backtrace());
  }
  usable.fetch_or(bit);
  return "";
}

c10::Device with_index(c10::Device device) {
  if (device.has_index()) return device;
  return {device.type(), Guard(device.type()).getDevice().index()};
}

c10::Stream callers_stream(c10::Device device, const char* operation) {
  const Guard guard(device.type());
  const c10::Stream stream = guard.getStream(device);
  TORCH_CHECK_NOT_IMPLEMENTED(!captures_graph(guard, stream), "braid ", operation,
                              ": the stream is capturing a graph, but a graph cannot hold operations that go "
                              "through the host; call it outside the capture");
  return stream;
}

c10::Stream default_stream(c10::Device device) { return Guard(device.type()).getDefaultStream(device); }

CopyStreams::CopyStreams(c10::Device device)
    : down(Guard(device.type()).getStreamFromGlobalPool(device)),
      up(Guard(device.type()).getStreamFromGlobalPool(device)) {}

at::Tensor pinned_bytes(c10::Device device, size_t bytes) {
  return at::detail::empty_generic({static_cast<int64_t>(bytes)}, at::getHostAllocator(device.type()),
                                   c10::DispatchKeySet(c10::DispatchKey::CPU), at::kByte, std::nullopt);
}

at::Tensor pinned_like(const at::Tensor& tensor) {
  return at::detail::empty_generic(tensor.sizes(), at::getHostAllocator(tensor.device().type()),
                                   c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.scalar_type(), std::nullopt);
}

}  // namespace braid::adapter

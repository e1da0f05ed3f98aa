// SPDX-License-Identifier: Apache-2.0
// What braid asks of an accelerator: streams, events and pinned memory. All of it comes from torch's own interfaces
// for any device, so no header of a vendor is needed.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <string>

#include "base/status.h"

namespace braid::adapter {

// Settings for copies between accelerators and the host.
struct CopySettings {
  size_t piece_bytes = size_t{4} << 20;    // larger operations are copied in pieces of about this size
  size_t pinned_bytes = size_t{64} << 20;  // of the collectives of a group that are under way
};
// The defaults, changed by BRAID_PIECE_BYTES and BRAID_PINNED_BYTES. kInvalidArgument names the variable that is wrong.
Result<CopySettings> copy_settings_from_env();

// Why braid cannot move tensors of this device; "" if it can. A device needs a guard with streams, and pinned
// memory.
std::string why_no_path(c10::Device device);

// The same device with its index: the current one, unless it has one.
c10::Device with_index(c10::Device device);
// The stream on which the calling thread works. Throws if it is capturing a graph.
c10::Stream callers_stream(c10::Device device, const char* operation);
c10::Stream default_stream(c10::Device device);

// The two streams of a group on a device: one for copies down to the host, one for copies up to the device. So neither
// kind of copies waits for the other, unless an operation reads what an earlier one writes.
struct CopyStreams {
  explicit CopyStreams(c10::Device device);
  const c10::Stream down;
  const c10::Stream up;
};

// Host memory that is pinned for a device, as bytes.
at::Tensor pinned_bytes(c10::Device device, size_t bytes);
// Contiguous host memory with the shape and dtype of the tensor, pinned for its device.
at::Tensor pinned_like(const at::Tensor& tensor);

}  // namespace braid::adapter

// SPDX-License-Identifier: Apache-2.0
// Copies between arrays of any library on a GPU and page-locked memory of the host, on two streams per device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "base/copy_rates.h"
#include "base/status.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/pinned.h"

namespace braid::cuda {

// Down to the host, or up to the device.
enum class Way { kDown, kUp };

// Thread-safe. Made at a device's first use, for the life of the process: streams and blocks are shared by all.
class Copies {
 public:
  // kInvalidArgument where there is no such device, kSystem where the driver refuses.
  static Result<Copies*> of_device(const Driver& driver, int ordinal);
  // The device whose memory an address is. kInvalidArgument where the driver does not know the address.
  static Result<int> device_of(const Driver& driver, CuAddress address);

  // The stream of the copies that go this way, for a library that makes it wait itself.
  Stream stream(Way way) const;
  // Copies that start from now on wait for what is queued on `theirs`. kUnsupported if that stream captures a graph.
  Status follow(Way way, Stream theirs) const;
  // Waits for all work of the device: for memory whose stream is not known.
  Status finish_all() const;

  // Wait for what the way follows and for the copy. `host` is page-locked.
  Status copy_down(void* host, CuAddress from, size_t bytes) const;
  Status copy_up(CuAddress to, const void* host, size_t bytes) const;

  PinnedPool& pinned() { return pinned_; }

  // Measured at the first call, in some ten milliseconds.
  Result<CopyRates> rates();

 private:
  Copies(const Driver& driver, CuContext context) : driver_(driver), context_(context), pinned_(driver, context) {}
  static Result<std::unique_ptr<Copies>> make(const Driver& driver, int ordinal);
  Result<CopyTimes> measure(Way way, void* host, CuAddress device) const;

  const Driver& driver_;
  const CuContext context_;  // retained for the life of the process
  CuStream down_ = nullptr, up_ = nullptr;
  PinnedPool pinned_;
  std::mutex measuring_;
  std::optional<CopyRates> rates_;  // guarded by measuring_
};

}  // namespace braid::cuda

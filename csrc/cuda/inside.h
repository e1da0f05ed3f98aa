// SPDX-License-Identifier: Apache-2.0
// Devices by their ordinal, and their contexts.
#pragma once

#include <string>

#include "cuda/driver.h"

namespace braid::cuda {

// Makes a context the calling thread's for a while.
class Inside {
 public:
  Inside(const Driver& driver, CuContext context) : driver_(driver) {
    CuContext current = nullptr;
    status_ = driver.check("cuCtxGetCurrent", driver.current_context(&current));
    if (!status_.ok() || current == context) return;
    status_ = driver.check("cuCtxPushCurrent", driver.push_context(context));
    pushed_ = status_.ok();
  }
  ~Inside() {
    CuContext ours = nullptr;
    if (pushed_) driver_.pop_context(&ours);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  const Status& status() const { return status_; }

 private:
  const Driver& driver_;
  Status status_;
  bool pushed_ = false;
};

inline Status find(const Driver& driver, int ordinal, CuDevice& device) {
  if (ordinal < 0 || ordinal >= driver.devices()) {
    return {Code::kInvalidArgument, "there is no CUDA device " + std::to_string(ordinal) + ", there are " +
                                        std::to_string(driver.devices())};
  }
  return driver.check("cuDeviceGet", driver.device_get(&device, ordinal));
}

}  // namespace braid::cuda

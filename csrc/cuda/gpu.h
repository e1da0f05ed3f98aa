// SPDX-License-Identifier: Apache-2.0
// A GPU with the kernels loaded into its primary context, which is the one that torch and CuPy use too.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/span.h"
#include "cuda/device.h"
#include "cuda/driver.h"

namespace braid::cuda {

struct Capability {
  int major = 0;
  int minor = 0;
};
// What a device can do, in NVIDIA's numbers. kInvalidArgument where there is no device of that ordinal.
Result<Capability> capability(const Driver& driver, int ordinal);

class Gpu final : public Device {
 public:
  // `image`: a fat binary, or PTX that ends with a zero; copied. The driver must outlive the Gpu.
  static Result<std::unique_ptr<Gpu>> open(const Driver& driver, int ordinal, ConstBytes image);
  ~Gpu() override;

  const std::string& name() const { return name_; }
  uint32_t multiprocessors() const override { return multiprocessors_; }
  Status launch(const char* kernel, uint32_t blocks, const Job& job, Stream stream) override;
  Status zero(void* at, size_t bytes, Stream stream) override;

 private:
  explicit Gpu(const Driver& driver) : driver_(driver) {}
  Status load(CuDevice device, ConstBytes image);
  Result<CuFunction> function_of(const char* kernel);

  const Driver& driver_;
  std::string name_;
  uint32_t multiprocessors_ = 0;
  CuContext context_ = nullptr;  // retained for the life of the process, as torch does
  CuModule module_ = nullptr;
  std::mutex mutex_;
  std::map<std::string, CuFunction, std::less<>> functions_;  // guarded by mutex_
};

}  // namespace braid::cuda

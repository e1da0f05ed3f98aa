// SPDX-License-Identifier: Apache-2.0
#include "cuda/gpu.h"

#include "cuda/inside.h"

namespace braid::cuda {
namespace {

Status attribute(const Driver& driver, int which, CuDevice device, int& value) {
  return driver.check("cuDeviceGetAttribute", driver.device_attribute(&value, which, device));
}

}  // namespace

Result<Capability> capability(const Driver& driver, int ordinal) {
  CuDevice device = 0;
  if (Status s = find(driver, ordinal, device); !s.ok()) return s;
  Capability found;
  if (Status s = attribute(driver, kCapabilityMajor, device, found.major); !s.ok()) return s;
  if (Status s = attribute(driver, kCapabilityMinor, device, found.minor); !s.ok()) return s;
  return found;
}

Result<std::unique_ptr<Gpu>> Gpu::open(const Driver& driver, int ordinal, ConstBytes image) {
  CuDevice device = 0;
  if (Status s = find(driver, ordinal, device); !s.ok()) return s;
  std::unique_ptr<Gpu> gpu(new Gpu(driver));
  if (Status s = gpu->load(device, image); !s.ok()) {
    return s.within("CUDA device " + std::to_string(ordinal));
  }
  return gpu;
}

Status Gpu::load(CuDevice device, ConstBytes image) {
  char name[256] = {};
  if (Status s = driver_.check("cuDeviceGetName", driver_.device_name(name, sizeof name - 1, device)); !s.ok()) {
    return s;
  }
  name_ = name;
  int count = 0;
  if (Status s = attribute(driver_, kMultiprocessorCount, device, count); !s.ok()) return s;
  multiprocessors_ = static_cast<uint32_t>(count);
  if (Status s = driver_.check("cuDevicePrimaryCtxRetain", driver_.retain_context(&context_, device)); !s.ok()) {
    return s;
  }
  const Inside inside(driver_, context_);
  if (!inside.status().ok()) return inside.status();
  return driver_.check("the kernels do not load: cuModuleLoadData", driver_.load_module(&module_, image.data()));
}

Gpu::~Gpu() {
  if (module_ == nullptr) return;
  const Inside inside(driver_, context_);
  if (inside.status().ok()) driver_.unload_module(module_);
}

Result<CuFunction> Gpu::function_of(const char* kernel) {
  const std::lock_guard lock(mutex_);
  if (const auto found = functions_.find(kernel); found != functions_.end()) return found->second;
  const std::string name = std::string("braid_") + kernel;
  CuFunction function = nullptr;
  if (Status s = driver_.check(name.c_str(), driver_.get_function(&function, module_, name.c_str())); !s.ok()) {
    return s;
  }
  functions_.emplace(kernel, function);
  return function;
}

Status Gpu::launch(const char* kernel, uint32_t blocks, const Job& job, Stream stream) {
  const Inside inside(driver_, context_);
  if (!inside.status().ok()) return inside.status();
  const Result<CuFunction> function = function_of(kernel);
  if (!function.ok()) return function.status();
  void* arguments[] = {const_cast<Job*>(&job)};
  return driver_.check(kernel, driver_.launch(function.value(), blocks, 1, 1, kThreads, 1, 1, 0,
                                              reinterpret_cast<CuStream>(stream), arguments, nullptr));
}

Status Gpu::zero(void* at, size_t bytes, Stream stream) {
  const Inside inside(driver_, context_);
  if (!inside.status().ok()) return inside.status();
  return driver_.check("cuMemsetD8Async", driver_.set_bytes(reinterpret_cast<CuAddress>(at), 0, bytes,
                                                            reinterpret_cast<CuStream>(stream)));
}

}  // namespace braid::cuda

// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.h"

#include <dlfcn.h>

namespace braid::cuda {

const Result<Driver>& Driver::of_process() {
  static const Result<Driver> driver = open("libcuda.so.1");
  return driver;
}

Result<Driver> Driver::open(const std::string& library) {
  const auto none = [](const std::string& why) { return Status(Code::kUnsupported, "no CUDA driver: " + why); };
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = ::dlerror();
    return none(why == nullptr ? library + " cannot be opened" : why);
  }
  Driver driver;
  const char* missing = nullptr;
#define BRAID_CUDA_FIND(member, name, ...)                                          \
  driver.member = reinterpret_cast<decltype(driver.member)>(::dlsym(handle, name)); \
  if (driver.member == nullptr) missing = name;
  BRAID_CUDA_ENTRY_POINTS(BRAID_CUDA_FIND)
#undef BRAID_CUDA_FIND
#define BRAID_CUDA_LOOK(member, name, ...) \
  driver.member = reinterpret_cast<decltype(driver.member)>(::dlsym(handle, name));
  BRAID_CUDA_OPTIONAL_ENTRY_POINTS(BRAID_CUDA_LOOK)
#undef BRAID_CUDA_LOOK
  if (missing != nullptr) return none(library + " has no " + missing);
  if (const CuResult result = driver.init(0); result != 0) {
    return none(driver.check("cuInit", result).message());
  }
  if (Status s = driver.check("cuDeviceGetCount", driver.device_count(&driver.devices_)); !s.ok()) return s;
  if (driver.devices_ == 0) return none(library + " finds no device");
  return driver;
}

Status Driver::check(const char* what, CuResult result) const {
  if (result == 0) return {};
  const char *name = nullptr, *text = nullptr;
  error_name(result, &name);
  error_text(result, &text);
  std::string message = std::string(what) + ": " + (name == nullptr ? "error " + std::to_string(result) : name);
  if (text != nullptr) message += std::string(", ") + text;
  return {Code::kSystem, message};
}

}  // namespace braid::cuda

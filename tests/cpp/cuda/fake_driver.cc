// SPDX-License-Identifier: Apache-2.0
// A library with the driver's entry points, that writes down what it was asked. FAKE_* of the environment make it fail.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::string calls;
void* current = nullptr;
int context, module_made, function_made;

int fails(const char* name) {
  const char* wanted = std::getenv("FAKE_CUDA_FAILS");
  return wanted != nullptr && std::strcmp(wanted, name) == 0 ? 700 : 0;
}
int note(const char* name, const std::string& rest = "") {
  calls += std::string(name) + rest + "\n";
  return fails(name);
}

}  // namespace

extern "C" {

const char* fake_calls() { return calls.c_str(); }
void fake_forget() { calls.clear(); }

int cuInit(unsigned) { return fails("cuInit"); }
int cuGetErrorName(int, const char** name) { return (*name = "CUDA_ERROR_FAKE", 0); }
int cuGetErrorString(int, const char** text) { return (*text = "as the test wished", 0); }
int cuDeviceGetCount(int* count) { return (*count = std::getenv("FAKE_CUDA_NONE") == nullptr ? 2 : 0, 0); }
int cuDeviceGet(int* device, int ordinal) { return (*device = 10 + ordinal, 0); }
int cuDeviceGetName(char* name, int bytes, int) {
  return (std::strncpy(name, "Fake", static_cast<size_t>(bytes)), 0);
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  return (*value = attribute == 16 ? 3 : attribute == 75 ? 9 : 0, 0);
}
int cuDevicePrimaryCtxRetain(void** made, int device) {
  *made = &context;
  return note("retain", " " + std::to_string(device));
}
int cuCtxGetCurrent(void** now) { return (*now = current, 0); }
int cuCtxPushCurrent_v2(void* pushed) { return (current = pushed, note("push")); }
int cuCtxPopCurrent_v2(void** popped) { return (*popped = current, current = nullptr, note("pop")); }
int cuModuleLoadData(void** made, const void* image) {
  *made = &module_made;
  return note("load", std::string(" ") + static_cast<const char*>(image));
}
int cuModuleUnload(void*) { return note("unload"); }
int cuModuleGetFunction(void** made, void*, const char* name) {
  *made = &function_made;
  return note("function", std::string(" ") + name);
}
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared, void* stream, void** arguments, void** extra) {
  uint64_t elements;  // what a Job begins with
  std::memcpy(&elements, arguments[0], sizeof elements);
  std::string text;
  for (const uint64_t number :
       {uint64_t{x}, uint64_t{y}, uint64_t{z}, uint64_t{block_x}, uint64_t{block_y}, uint64_t{block_z},
        uint64_t{shared}, reinterpret_cast<uint64_t>(stream), elements}) {
    text += " " + std::to_string(number);
  }
  return note("launch",
              text + (function == &function_made && extra == nullptr && current == &context ? "" : " WRONG"));
}
int cuMemsetD8Async(unsigned long long at, unsigned char value, size_t bytes, void* stream) {
  return note("set", " " + std::to_string(at) + " " + std::to_string(value) + " " + std::to_string(bytes) + " " +
                         std::to_string(reinterpret_cast<uint64_t>(stream)));
}
int cuMemHostGetDevicePointer_v2(unsigned long long* address, void* host, unsigned) {
  *address = reinterpret_cast<uint64_t>(host) + 1000;
  return fails("cuMemHostGetDevicePointer");
}
int cuStreamWaitValue32_v2(void* stream, unsigned long long at, unsigned value, unsigned flags) {
  return note("cuStreamWaitValue32", " " + std::to_string(reinterpret_cast<uint64_t>(stream)) + " " +
                                         std::to_string(at) + " " + std::to_string(value) + " " +
                                         std::to_string(flags));
}
int cuStreamWriteValue32_v2(void* stream, unsigned long long at, unsigned value, unsigned flags) {
  return note("cuStreamWriteValue32", " " + std::to_string(reinterpret_cast<uint64_t>(stream)) + " " +
                                          std::to_string(at) + " " + std::to_string(value) + " " +
                                          std::to_string(flags));
}

// The loader asks for these. The executing driver has them.
#define BRAID_FAKE_UNUSED(name) \
  int name() { return 801; }
BRAID_FAKE_UNUSED(cuCtxSynchronize)
BRAID_FAKE_UNUSED(cuPointerGetAttribute)
BRAID_FAKE_UNUSED(cuMemAlloc_v2)
BRAID_FAKE_UNUSED(cuMemFree_v2)
BRAID_FAKE_UNUSED(cuMemHostAlloc)
BRAID_FAKE_UNUSED(cuMemFreeHost)
BRAID_FAKE_UNUSED(cuMemcpyDtoHAsync_v2)
BRAID_FAKE_UNUSED(cuMemcpyHtoDAsync_v2)
BRAID_FAKE_UNUSED(cuStreamCreate)
BRAID_FAKE_UNUSED(cuStreamSynchronize)
BRAID_FAKE_UNUSED(cuStreamWaitEvent)
BRAID_FAKE_UNUSED(cuStreamIsCapturing)
BRAID_FAKE_UNUSED(cuEventCreate)
BRAID_FAKE_UNUSED(cuEventRecord)
BRAID_FAKE_UNUSED(cuEventDestroy_v2)

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
// The loader, without a driver and with one that is made up.
#include "cuda/driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "cuda/flags.h"
#include "cuda/gpu.h"

namespace braid::cuda {
namespace {

constexpr char kImage[] = "IMAGE";
const ConstBytes kImageBytes = std::as_bytes(std::span(kImage));

class FakeDriver : public testing::Test {
 protected:
  FakeDriver() {
    library_ = ::dlopen(BRAID_FAKE_CUDA, RTLD_NOW);
    forget();
  }
  ~FakeDriver() override {
    ::unsetenv("FAKE_CUDA_FAILS");
    ::unsetenv("FAKE_CUDA_NONE");
  }
  void forget() { reinterpret_cast<void (*)()>(::dlsym(library_, "fake_forget"))(); }
  std::string calls() { return reinterpret_cast<const char* (*)()>(::dlsym(library_, "fake_calls"))(); }

  void* library_;
};

TEST(Driver, SaysThatThereIsNone) {
  const auto driver = Driver::open("libno-such-driver.so.1");
  EXPECT_EQ(driver.status().code(), Code::kUnsupported);
  EXPECT_EQ(driver.status().message().find("no CUDA driver: libno-such-driver.so.1: "), 0u)
      << driver.status().message();
}

TEST(Driver, DoesNotTakeAnotherLibraryForOne) {
  const auto driver = Driver::open("libm.so.6");
  EXPECT_EQ(driver.status().code(), Code::kUnsupported);
  EXPECT_NE(driver.status().message().find("libm.so.6 has no cu"), std::string::npos);
}

TEST(Driver, GivesTheProcessesOwnOrAlwaysTheSameError) {
  const Result<Driver>& driver = Driver::of_process();
  EXPECT_EQ(&driver, &Driver::of_process());
  EXPECT_TRUE(driver.ok() || driver.status().message().find("no CUDA driver: ") == 0u);
}

TEST_F(FakeDriver, AStreamWaitsForANumberAndWritesOne) {
  const auto driver = Driver::open(BRAID_FAKE_CUDA);
  ASSERT_TRUE(driver.ok());
  auto* word = reinterpret_cast<uint32_t*>(uintptr_t{4096});
  const auto stream = reinterpret_cast<CuStream>(uintptr_t{7});
  EXPECT_TRUE(wait_for_flag(driver.value(), stream, word, 3));
  EXPECT_EQ(calls(), "cuStreamWaitValue32 7 5096 3 0\n");
  for (const char* call : {"cuMemHostGetDevicePointer", "cuStreamWaitValue32"}) {
    ::setenv("FAKE_CUDA_FAILS", call, 1);
    EXPECT_FALSE(wait_for_flag(driver.value(), stream, word, 3)) << call;
  }
  ::unsetenv("FAKE_CUDA_FAILS");
  forget();
  EXPECT_TRUE(write_flag(driver.value(), stream, word, 4));
  EXPECT_EQ(calls(), "cuStreamWriteValue32 7 5096 4 0\n");
  for (const char* call : {"cuMemHostGetDevicePointer", "cuStreamWriteValue32"}) {
    ::setenv("FAKE_CUDA_FAILS", call, 1);
    EXPECT_FALSE(write_flag(driver.value(), stream, word, 4)) << call;
  }
}

TEST_F(FakeDriver, SaysWhyItCannotBeUsed) {
  ::setenv("FAKE_CUDA_FAILS", "cuInit", 1);
  EXPECT_EQ(Driver::open(BRAID_FAKE_CUDA).status().message(),
            "no CUDA driver: cuInit: CUDA_ERROR_FAKE, as the test wished");
  ::unsetenv("FAKE_CUDA_FAILS");
  ::setenv("FAKE_CUDA_NONE", "1", 1);
  EXPECT_EQ(Driver::open(BRAID_FAKE_CUDA).status().message(),
            "no CUDA driver: " BRAID_FAKE_CUDA " finds no device");
}

TEST_F(FakeDriver, LaunchesOnTheStreamInThePrimaryContext) {
  auto driver = Driver::open(BRAID_FAKE_CUDA);
  ASSERT_TRUE(driver.ok()) << driver.status().message();
  {
    auto gpu = Gpu::open(driver.value(), 1, kImageBytes);
    ASSERT_TRUE(gpu.ok()) << gpu.status().message();
    EXPECT_EQ(gpu.value()->name(), "Fake");
    EXPECT_EQ(gpu.value()->multiprocessors(), 3u);
    Job job;
    job.elements = 77;
    EXPECT_TRUE(gpu.value()->launch("pack", 5, job, 42).ok());
    EXPECT_TRUE(gpu.value()->launch("pack", 6, job, 0).ok());
    EXPECT_TRUE(gpu.value()->zero(reinterpret_cast<void*>(64), 12, 42).ok());
  }
  EXPECT_EQ(calls(),
            "retain 11\npush\nload IMAGE\npop\n"
            "push\nfunction braid_pack\nlaunch 5 1 1 256 1 1 0 42 77\npop\n"
            "push\nlaunch 6 1 1 256 1 1 0 0 77\npop\n"
            "push\nset 64 0 12 42\npop\n"
            "push\nunload\npop\n");
}

TEST_F(FakeDriver, SaysWhatADeviceCanDo) {
  auto driver = Driver::open(BRAID_FAKE_CUDA);
  ASSERT_TRUE(driver.ok());
  const auto found = capability(driver.value(), 1);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.value().major, 9);
  EXPECT_EQ(found.value().minor, 0);
  EXPECT_EQ(capability(driver.value(), -1).status().code(), Code::kInvalidArgument);
}

TEST_F(FakeDriver, HandsOnWhatTheDriverSays) {
  auto driver = Driver::open(BRAID_FAKE_CUDA);
  ASSERT_TRUE(driver.ok());
  EXPECT_EQ(Gpu::open(driver.value(), 2, kImageBytes).status().message(),
            "there is no CUDA device 2, there are 2");
  ::setenv("FAKE_CUDA_FAILS", "load", 1);
  EXPECT_EQ(Gpu::open(driver.value(), 0, kImageBytes).status().message(),
            "CUDA device 0: the kernels do not load: cuModuleLoadData: CUDA_ERROR_FAKE, as the test wished");
  ::setenv("FAKE_CUDA_FAILS", "launch", 1);
  auto gpu = Gpu::open(driver.value(), 0, kImageBytes);
  ASSERT_TRUE(gpu.ok());
  EXPECT_EQ(gpu.value()->launch("pack", 1, Job(), 0).message(), "pack: CUDA_ERROR_FAKE, as the test wished");
}

}  // namespace
}  // namespace braid::cuda

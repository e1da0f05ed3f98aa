// SPDX-License-Identifier: Apache-2.0
// Copies on the executing driver, whose streams can be made late.
#include "cuda/copies.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "cuda/inside.h"

namespace braid::cuda {
namespace {

class CopiesTest : public testing::Test {
 protected:
  CopiesTest() : library_(::dlopen(BRAID_EXECUTING_CUDA, RTLD_NOW)) {
    delay(0, 0);
    EXPECT_TRUE(driver().ok()) << driver().status().message();
    auto made = Copies::of_device(driver().value(), 0);
    EXPECT_TRUE(made.ok()) << made.status().message();
    copies_ = made.value();
    CuContext context = nullptr;
    driver().value().retain_context(&context, 0);
    driver().value().push_context(context);
  }
  ~CopiesTest() override {
    delay(0, 0);
    CuContext context = nullptr;
    driver().value().pop_context(&context);
  }

  static const Result<Driver>& driver() {
    static const Result<Driver> opened = Driver::open(BRAID_EXECUTING_CUDA);
    return opened;
  }
  template <class Function>
  Function* in_library(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(library_, name));
  }
  void delay(int64_t on_default_us, int64_t on_made_us) {
    in_library<void(int64_t, int64_t, int64_t, uint32_t)>("fake_set_delays")(on_default_us, on_made_us, 0, 0);
  }
  CuAddress device_memory(size_t bytes) {
    CuAddress address = 0;
    EXPECT_EQ(driver().value().take_memory(&address, bytes), 0);
    return address;
  }

  void* library_;
  Copies* copies_ = nullptr;
};

// What the streams hold when nobody waits for them: memory that was never written.
constexpr std::byte kPoison{0xFF};

TEST_F(CopiesTest, WaitForTheCallersStreamAndForTheCopy) {
  const size_t bytes = 1000;
  const CuAddress device = device_memory(bytes);
  const auto host = copies_->pinned().take(bytes);
  ASSERT_TRUE(host.ok());
  for (const auto& [on_default, on_made] : {std::pair{0, 20000}, {20000, 0}, {20000, 20000}}) {
    delay(on_default, on_made);
    ASSERT_EQ(driver().value().set_bytes(device, 0xFF, bytes, nullptr), 0);
    ASSERT_EQ(driver().value().set_bytes(device, 7, bytes, nullptr), 0);
    ASSERT_TRUE(copies_->follow(Way::kDown, 1).ok());
    ASSERT_TRUE(copies_->copy_down(host.value(), device, bytes).ok());
    const auto* const read = static_cast<const std::byte*>(host.value());
    EXPECT_EQ(std::vector<std::byte>(read, read + bytes), std::vector<std::byte>(bytes, std::byte{7}));
  }
  copies_->pinned().give_back(host.value(), bytes);
  driver().value().free_memory(device);
}

TEST_F(CopiesTest, WithoutFollowingThePoisonIsRead) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the race that ThreadSanitizer would report is what this test is about";
#endif
  const size_t bytes = 64;
  const CuAddress device = device_memory(bytes);
  const auto host = copies_->pinned().take(bytes);
  ASSERT_TRUE(host.ok());
  auto* const hold = in_library<void(int, int)>("fake_hold");
  hold(1, 0);
  ASSERT_EQ(driver().value().set_bytes(device, 7, bytes, nullptr), 0);
  ASSERT_TRUE(copies_->copy_down(host.value(), device, bytes).ok());
  hold(0, 0);
  EXPECT_EQ(static_cast<const std::byte*>(host.value())[0], kPoison);
  copies_->pinned().give_back(host.value(), bytes);
  driver().value().free_memory(device);
}

TEST_F(CopiesTest, CopyUpReturnsWhenTheDeviceHasTheBytes) {
  const size_t bytes = 4096;
  const CuAddress device = device_memory(bytes);
  const auto host = copies_->pinned().take(bytes);
  ASSERT_TRUE(host.ok());
  delay(0, 20000);
  std::memset(host.value(), 5, bytes);
  ASSERT_TRUE(copies_->copy_up(device, host.value(), bytes).ok());
  std::memset(host.value(), 6, bytes);  // the copy has read it
  ASSERT_TRUE(copies_->copy_down(host.value(), device, bytes).ok());
  EXPECT_EQ(static_cast<const std::byte*>(host.value()) [bytes - 1], std::byte { 5 });
  copies_->pinned().give_back(host.value(), bytes);
  driver().value().free_memory(device);
}

TEST_F(CopiesTest, PageLockedBlocksAreUsedAgain) {
  PinnedPool& pool = copies_->pinned();
  const auto first = pool.take(3000);
  ASSERT_TRUE(first.ok());
  pool.give_back(first.value(), 3000);
  const size_t idle = pool.idle_bytes();
  const auto second = pool.take(4000);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second.value(), first.value());
  EXPECT_LT(pool.idle_bytes(), idle);
  pool.give_back(second.value(), 4000);
}

TEST_F(CopiesTest, KnowsTheDeviceOfAnAddress) {
  const CuAddress device = device_memory(16);
  EXPECT_EQ(Copies::device_of(driver().value(), device + 3).value(), 0);
  int on_host = 0;
  const auto unknown = Copies::device_of(driver().value(), reinterpret_cast<CuAddress>(&on_host));
  EXPECT_EQ(unknown.status().code(), Code::kInvalidArgument);
  driver().value().free_memory(device);
}

TEST_F(CopiesTest, RefusesAStreamThatItCannotFollow) {
  EXPECT_NE(copies_->follow(Way::kDown, 0xABC).message().find("CUDA_ERROR_INVALID_HANDLE"), std::string::npos);
  auto* const capture = in_library<void(void*, int)>("fake_set_capturing");
  capture(nullptr, 1);
  EXPECT_EQ(copies_->follow(Way::kDown, 1).code(), Code::kUnsupported);
  capture(nullptr, 0);
  EXPECT_TRUE(copies_->follow(Way::kDown, 1).ok());
  EXPECT_EQ(Copies::of_device(driver().value(), 1).status().message(), "there is no CUDA device 1, there are 1");
}

TEST_F(CopiesTest, RatesFollowTheDelays) {
  delay(0, 3000);
  const auto rates = copies_->rates();
  ASSERT_TRUE(rates.ok()) << rates.status().message();
  EXPECT_GE(rates.value().down.latency_s, 0.003);
  EXPECT_GE(rates.value().up.latency_s, 0.003);
  EXPECT_GT(rates.value().down.s_per_byte, 0);
  delay(0, 0);
  EXPECT_EQ(copies_->rates().value().down.latency_s, rates.value().down.latency_s);  // measured once
}

// The values that streams wait for: whoever builds on them needs a driver that means them.
TEST_F(CopiesTest, TheDriversStreamsWaitForValues) {
  const auto host = copies_->pinned().take(8);
  ASSERT_TRUE(host.ok());
  auto& value = *static_cast<uint32_t*>(host.value());
  value = 0;
  const CuAddress at = reinterpret_cast<CuAddress>(&value);
  const CuAddress device = device_memory(16);
  auto* const wait = in_library<int(CuStream, CuAddress, uint32_t, unsigned)>("cuStreamWaitValue32_v2");
  auto* const write = in_library<int(CuStream, CuAddress, uint32_t, unsigned)>("cuStreamWriteValue32_v2");
  auto* const query = in_library<int(CuStream)>("cuStreamQuery");
  CuStream stream = nullptr;
  ASSERT_EQ(driver().value().make_stream(&stream, kNonBlocking), 0);
  ASSERT_EQ(wait(stream, at, 3, 0), 0);  // at least 3
  ASSERT_EQ(driver().value().set_bytes(device, 1, 16, stream), 0);
  ASSERT_EQ(write(stream, at, 9, 0), 0);
  EXPECT_EQ(query(stream), 600);
  __atomic_store_n(&value, 3u, __ATOMIC_SEQ_CST);
  ASSERT_EQ(driver().value().finish_stream(stream), 0);
  EXPECT_EQ(__atomic_load_n(&value, __ATOMIC_SEQ_CST), 9u);
  driver().value().free_memory(device);
  copies_->pinned().give_back(host.value(), 8);
}

}  // namespace
}  // namespace braid::cuda

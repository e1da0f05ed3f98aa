// SPDX-License-Identifier: Apache-2.0
#include "base/caught.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <system_error>

namespace braid {
namespace {

template <class Thrown>
Status of(const Thrown& thrown) {
  return caught("reading a map", [&] { throw thrown; });
}

TEST(Barrier, SaysWhatWasThrownAndWhile) {
  EXPECT_TRUE(caught("reading a map", [] {}).ok());
  const Status memory = of(std::bad_alloc());
  EXPECT_EQ(memory.code(), Code::kSystem);
  EXPECT_EQ(memory.message(), "out of memory while reading a map");
  const Status thread = of(std::system_error(EAGAIN, std::generic_category()));
  EXPECT_EQ(thread.code(), Code::kSystem);
  EXPECT_EQ(thread.message(), "Resource temporarily unavailable, while reading a map");
  const Status mistake = of(std::length_error("too long"));
  EXPECT_EQ(mistake.code(), Code::kInternal);
  EXPECT_EQ(mistake.message(), "too long, while reading a map");
  EXPECT_EQ(of(7).message(), "an unknown exception while reading a map");
}

TEST(Barrier, AStatusIsCopiedWithItsMessage) {
  const Status one(Code::kTimeout, "late", 3);
  const Status copy = one, led = one.within("all_reduce");
  EXPECT_EQ(&copy.message(), &one.message());  // not copied: that would take memory
  EXPECT_EQ(led.message(), "all_reduce: late");
  EXPECT_EQ(led.rank(), 3);
  EXPECT_EQ(Status().message(), "");
  EXPECT_FALSE(Status::out_of_memory().ok());
  EXPECT_NE(Status::out_of_memory().message(), "");
}

}  // namespace
}  // namespace braid

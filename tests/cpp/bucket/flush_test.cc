// SPDX-License-Identifier: Apache-2.0
// What the calling thread does with subnormal floats, and how it rounds, changes no bit (base/float_environment.h).
#include <gtest/gtest.h>

#include <optional>

#include "base/float_environment.h"
#include "bucket/tensors.h"

namespace braid::testing {
namespace {

#if defined(__x86_64__)

class FlushingBucket {
 public:
  FlushingBucket() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0xe040u); }
  ~FlushingBucket() { _mm_setcsr(before_); }

 private:
  const unsigned before_;
};

struct Moved {
  std::vector<float> packed;
  std::vector<std::vector<std::byte>> unpacked;
};

Moved moved(float size, bool flushes) {
  Tensors tensors = mixed_tensors();
  tensors.fill(1);
  std::vector<float> small = tensors.flat();
  for (float& value : small) value *= size;
  tensors.assign(small, 1);
  const Bucket bucket = tensors.bucket();
  Moved made{std::vector<float>(bucket.elements()), {}};
  {
    std::optional<FlushingBucket> settings;
    if (flushes) settings.emplace();
    EXPECT_TRUE(bucket.pack({0, bucket.elements()}, 0.3f, made.packed).ok());
    EXPECT_TRUE(bucket.unpack(small, {0, bucket.elements()}, 0.3f).ok());
  }
  made.unpacked = tensors.bytes();
  return made;
}

TEST(BucketFlush, ChangesNoBit) {
  for (const float size : {1.0f, 1e-6f, 1e-37f, 1e-40f}) {
    const Moved plain = moved(size, false), flushed = moved(size, true);
    EXPECT_EQ(std::memcmp(plain.packed.data(), flushed.packed.data(), plain.packed.size() * sizeof(float)), 0)
        << size;
    EXPECT_EQ(plain.unpacked, flushed.unpacked) << size;
  }
}

#endif

}  // namespace
}  // namespace braid::testing

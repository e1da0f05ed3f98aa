// SPDX-License-Identifier: Apache-2.0
// The processor's settings for floats belong to a thread, and other code changes them: torch.set_flush_denormal(),
// libraries built with -Ofast. Results that must have the same bits everywhere are computed under a PlainFloats
// object.
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace braid {

// While it exists, the thread that made it rounds to nearest even and keeps subnormal numbers.
class PlainFloats {
 public:
  PlainFloats() : before_(settings()) {
    if ((before_ & kChanging) != 0) set(before_ & ~kChanging);
  }
  ~PlainFloats() {
    if ((before_ & kChanging) != 0) set(before_);
  }
  PlainFloats(const PlainFloats&) = delete;
  PlainFloats& operator=(const PlainFloats&) = delete;

 private:
#if defined(__SSE2__)
  using Settings = uint32_t;
  static constexpr Settings kChanging = 0xe040;  // flush to zero, rounding, denormals are zeros
  static Settings settings() { return _mm_getcsr(); }
  static void set(Settings settings) { _mm_setcsr(settings); }
#elif defined(__aarch64__)
  using Settings = uint64_t;
  static constexpr Settings kChanging = 0x1c80000;  // flush to zero, of halves too; rounding
  static Settings settings() {
    Settings settings;
    asm volatile("mrs %0, fpcr" : "=r"(settings));
    return settings;
  }
  static void set(Settings settings) { asm volatile("msr fpcr, %0" : : "r"(settings) : "memory"); }
#else
  using Settings = uint32_t;
  static constexpr Settings kChanging = 0;
  static Settings settings() { return 0; }
  static void set(Settings) {}
#endif

  const Settings before_;
};

}  // namespace braid

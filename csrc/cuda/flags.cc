// SPDX-License-Identifier: Apache-2.0
#include "cuda/flags.h"

namespace braid::cuda {
namespace {

constexpr unsigned kGreaterOrEqual = 0;  // CU_STREAM_WAIT_VALUE_GEQ

}  // namespace

bool has_flags() {
  const Result<Driver>& driver = Driver::of_process();
  return driver.ok() && driver.value().wait_value != nullptr && driver.value().host_address != nullptr;
}

bool wait_for_flag(CuStream stream, const uint32_t* word, uint32_t value) {
  return has_flags() && wait_for_flag(Driver::of_process().value(), stream, word, value);
}

bool wait_for_flag(const Driver& driver, CuStream stream, const uint32_t* word, uint32_t value) {
  if (driver.wait_value == nullptr || driver.host_address == nullptr) return false;
  CuAddress address = 0;
  if (driver.host_address(&address, const_cast<uint32_t*>(word), 0) != 0) return false;
  return driver.wait_value(stream, address, value, kGreaterOrEqual) == 0;
}

}  // namespace braid::cuda

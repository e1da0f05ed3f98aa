// SPDX-License-Identifier: Apache-2.0
#include "cuda/flags.h"

namespace braid::cuda {
namespace {

constexpr unsigned kGreaterOrEqual = 0;  // CU_STREAM_WAIT_VALUE_GEQ
constexpr unsigned kAfterAll = 0;        // CU_STREAM_WRITE_VALUE_DEFAULT: the writes before it are seen first

// The address of pinned memory for the device; 0 if there is none.
CuAddress address_of(const Driver& driver, const uint32_t* word) {
  CuAddress address = 0;
  if (driver.host_address == nullptr) return 0;
  return driver.host_address(&address, const_cast<uint32_t*>(word), 0) == 0 ? address : 0;
}

}  // namespace

bool has_flags() {
  const Result<Driver>& driver = Driver::of_process();
  return driver.ok() && driver.value().wait_value != nullptr && driver.value().write_value != nullptr &&
         driver.value().host_address != nullptr;
}

bool wait_for_flag(CuStream stream, const uint32_t* word, uint32_t value) {
  return has_flags() && wait_for_flag(Driver::of_process().value(), stream, word, value);
}

bool write_flag(CuStream stream, uint32_t* word, uint32_t value) {
  return has_flags() && write_flag(Driver::of_process().value(), stream, word, value);
}

bool wait_for_flag(const Driver& driver, CuStream stream, const uint32_t* word, uint32_t value) {
  const CuAddress address = address_of(driver, word);
  if (driver.wait_value == nullptr || address == 0) return false;
  return driver.wait_value(stream, address, value, kGreaterOrEqual) == 0;
}

bool write_flag(const Driver& driver, CuStream stream, uint32_t* word, uint32_t value) {
  const CuAddress address = address_of(driver, word);
  if (driver.write_value == nullptr || address == 0) return false;
  return driver.write_value(stream, address, value, kAfterAll) == 0;
}

}  // namespace braid::cuda

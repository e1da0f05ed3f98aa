// SPDX-License-Identifier: Apache-2.0
#include "base/caught.h"

#include <exception>
#include <new>
#include <string>
#include <system_error>

namespace braid {
namespace {

Status named(const char* doing) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return {Code::kSystem, std::string("out of memory while ") + doing};
  } catch (const std::system_error& error) {
    return {Code::kSystem, std::string(error.what()) + ", while " + doing};
  } catch (const std::exception& error) {
    return {Code::kInternal, std::string(error.what()) + ", while " + doing};
  } catch (...) {
    return {Code::kInternal, std::string("an unknown exception while ") + doing};
  }
}

}  // namespace

Status status_of_exception(const char* doing) noexcept {
  try {
    return named(doing);
  } catch (...) {
    return Status::out_of_memory();
  }
}

}  // namespace braid

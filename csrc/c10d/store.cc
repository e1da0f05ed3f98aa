// SPDX-License-Identifier: Apache-2.0
#include "c10d/store.h"

#include <c10/util/Exception.h>

#include <cstdint>
#include <exception>
#include <vector>

namespace braid::adapter {
namespace {

// So short a wait is a look: torch's TCPStore prints two lines for every wait that was in vain.
constexpr milliseconds kLook{1};

std::string text_of(const std::exception& error) {
  if (const auto* with_backtrace = dynamic_cast<const c10::Error*>(&error)) {
    return with_backtrace->what_without_backtrace();
  }
  return error.what();
}

}  // namespace

Status C10dStore::set(const std::string& key, const std::string& value) {
  try {
    store_->set(key, std::vector<uint8_t>(value.begin(), value.end()));
    return {};
  } catch (const std::exception& error) {
    return {Code::kSystem, "the store refused to set key '" + key + "': " + text_of(error)};
  }
}

Result<std::string> C10dStore::get(const std::string& key, milliseconds timeout) {
  const Deadline deadline = deadline_after(timeout);
  try {
    if (timeout == kLook && !store_->check({key})) return Status(Code::kTimeout, "there is no key '" + key + "'");
    if (timeout.count() > 0) {
      store_->wait({key}, timeout);
    } else {
      store_->wait({key});
    }
    const std::vector<uint8_t> value = store_->get(key);
    return std::string(value.begin(), value.end());
  } catch (const std::exception& error) {
    // Stores have no error type of their own for a timeout; the clock tells. The millisecond allows for a store
    // that rounds down.
    const bool late = Clock::now() + milliseconds(1) >= deadline;
    const std::string what = late
                                 ? " did not appear in the store within " + std::to_string(timeout.count()) + " ms"
                                 : " could not be read from the store";
    return Status(late ? Code::kTimeout : Code::kSystem, "key '" + key + "'" + what + ": " + text_of(error));
  }
}

}  // namespace braid::adapter

// SPDX-License-Identifier: Apache-2.0
#include "c10d/store.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "base/limits.h"

namespace braid::adapter {
namespace {

// Pauses between two looks at the store. They grow with the wait, so that many ranks that wait for one rank do not
// keep the store busy.
constexpr milliseconds kFirstPause{1};
constexpr milliseconds kUsualPause{20};
constexpr milliseconds kLongestPause{200};
constexpr int kPauseShare = 16;

milliseconds longer(milliseconds pause, Clock::duration waited) {
  const auto share = std::chrono::duration_cast<milliseconds>(waited / kPauseShare);
  return std::min(2 * pause, std::clamp(share, kUsualPause, kLongestPause));
}

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

bool C10dStore::is_given_up() {
  if (!give_up_ || Clock::now() < look_up_at_) return false;
  look_up_at_ = Clock::now() + kLookUpEvery;
  return give_up_();
}

// Asks the store again and again, without its wait(). The store's wait() does not check for signals, and some
// stores log a line after each wait that times out.
Result<std::string> C10dStore::get(const std::string& key, milliseconds timeout) {
  const Clock::time_point begun = Clock::now();
  const Deadline deadline = deadline_after(timeout, begun);
  try {
    milliseconds pause = kFirstPause;
    while (true) {
      if (is_given_up()) return Status(Code::kAborted, "nobody waits for key '" + key + "' any more");
      if (store_->check({key})) break;
      const auto now = Clock::now();
      if (now >= deadline) {
        return Status(Code::kTimeout, "key '" + key + "' did not appear in the store within " +
                                          std::to_string(timeout.count()) + " ms");
      }
      std::this_thread::sleep_until(std::min<Clock::time_point>(now + pause, deadline));
      pause = longer(pause, now - begun);
    }
    const std::vector<uint8_t> value = store_->get(key);
    if (value.size() > kMostStoreValueBytes) {
      return Status(Code::kSystem,
                    too_large("the store's value of key '" + key + "'", value.size(), kMostStoreValueBytes));
    }
    return std::string(value.begin(), value.end());
  } catch (const std::exception& error) {
    return Status(Code::kSystem, "key '" + key + "' could not be read from the store: " + text_of(error));
  }
}

}  // namespace braid::adapter

// SPDX-License-Identifier: Apache-2.0
#include "parameters/list.h"

#include <thread>

namespace braid {

namespace {

// Whether nobody has the key. Two who write at the same time see it after kSettleTime, so whoever was held up after it
// looked looks again before it writes.
Result<bool> is_free(Store& store, const std::string& key) {
  for (int looks = 0; looks < 5; ++looks) {
    const Deadline begun = Clock::now();
    const auto holder = store.get(key, kGlance);
    if (holder.ok()) return false;
    if (holder.status().code() != Code::kTimeout) return holder.status();
    if (Clock::now() - begun < kGlance + kSettleTime / 2) break;
  }
  return true;
}

}  // namespace

std::string list_key(const std::string& name, int k) {
  return "braid/parameters/" + name + "/late/" + std::to_string(k);
}

std::string coming_key(const std::string& name, int server_place, int k) {
  return "braid/parameters/" + name + "/coming/" + std::to_string(server_place) + "/" + std::to_string(k);
}

std::string who_key(const std::string& name, int member) {
  return "braid/parameters/" + name + "/who/" + std::to_string(member);
}

Result<int> write_in_list(const std::string& name, Store& store, const std::string& text) {
  for (int k = 0;; ++k) {
    const std::string key = list_key(name, k);
    const auto free = is_free(store, key);
    if (!free.ok()) return free.status();
    if (!free.value()) continue;
    if (Status bad = store.set(key, text); !bad.ok()) return bad;
    std::this_thread::sleep_for(kSettleTime);
    const auto now = store.get(key, kGlance);
    if (now.ok() && now.value() == text) return k;
  }
}

}  // namespace braid

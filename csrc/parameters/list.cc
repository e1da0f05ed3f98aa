// SPDX-License-Identifier: Apache-2.0
#include "parameters/list.h"

#include <thread>

namespace braid {

std::string list_key(const std::string& name, int k) {
  return "braid/parameters/" + name + "/late/" + std::to_string(k);
}

std::string who_key(const std::string& name, int member) {
  return "braid/parameters/" + name + "/who/" + std::to_string(member);
}

Result<int> write_in_list(const std::string& name, Store& store, const std::string& text) {
  for (int k = 0;; ++k) {
    const std::string key = list_key(name, k);
    const auto holder = store.get(key, kGlance);
    if (holder.ok()) continue;
    if (holder.status().code() != Code::kTimeout) return holder.status();
    if (Status bad = store.set(key, text); !bad.ok()) return bad;
    std::this_thread::sleep_for(kSettleTime);
    const auto now = store.get(key, kGlance);
    if (now.ok() && now.value() == text) return k;
  }
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "communicator/link_memory.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/sha256.h"

namespace braid {
namespace {

constexpr int64_t kKeptFor_s = 24 * 60 * 60;

std::string key_for(const std::string& name) { return hex(sha256(bytes_of(name))).substr(0, 32); }

int64_t now_s() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

// In any locale, and back to the last bit.
std::string number_text(double value) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return {digits.data(), end};
}

bool parse(const std::string& text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 && value < 1e9;
}

}  // namespace

std::optional<Topology> LinkMemory::recall(const std::vector<std::string>& names, const std::vector<int>& hosts,
                                           Link within_host) {
  const std::lock_guard lock(mutex_);
  read_file();
  std::vector<Entry> found;  // by host
  for (size_t rank = 0; rank < names.size(); ++rank) {
    if (hosts[rank] != static_cast<int>(found.size())) continue;
    const auto entry = entries_.find(key_for(names[rank]));
    if (entry == entries_.end() || std::abs(now_s() - entry->second.found_at_s) > kKeptFor_s) return std::nullopt;
    found.push_back(entry->second);
  }
  Link between{0, found.front().card.up_s_per_byte};
  for (const Entry& entry : found) {
    between.alpha_s = std::max(between.alpha_s, entry.alpha_s);
    between.beta_s_per_byte =
        std::min({between.beta_s_per_byte, entry.card.up_s_per_byte, entry.card.down_s_per_byte});
  }
  Topology topology(hosts, within_host, between);
  for (size_t host = 0; host < found.size(); ++host) topology.set_card(static_cast<int>(host), found[host].card);
  return topology;
}

void LinkMemory::keep(const std::vector<std::string>& names, const Topology& topology) {
  const std::lock_guard lock(mutex_);
  read_file();
  for (size_t rank = 0; rank < names.size(); ++rank) {
    const Topology::Card card = topology.card(topology.host(static_cast<int>(rank)));
    entries_[key_for(names[rank])] = {now_s(), topology.between_hosts().alpha_s, card};
  }
  write_file();
}

void LinkMemory::read_file() {
  if (std::exchange(has_read_, true) || file_.empty()) return;
  std::ifstream file(file_);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key, time, alpha, up, down;
    Entry entry;
    if (!(words >> key >> time >> alpha >> up >> down) || key.size() != 32) continue;
    if (!parse(alpha, entry.alpha_s) || !parse(up, entry.card.up_s_per_byte)) continue;
    if (!parse(down, entry.card.down_s_per_byte)) continue;
    const auto [end, error] = std::from_chars(time.data(), time.data() + time.size(), entry.found_at_s);
    if (error != std::errc() || end != time.data() + time.size() || entry.found_at_s < 0) continue;
    entries_[key] = entry;
  }
}

// Replaced in one step: others may be reading.
void LinkMemory::write_file() const {
  if (file_.empty()) return;
  std::error_code ignored;  // where the folder is missing the file cannot be opened
  std::filesystem::create_directories(std::filesystem::path(file_).parent_path(), ignored);
  const std::string draft = file_ + "." + std::to_string(::getpid());
  {
    std::ofstream file(draft);
    for (const auto& [key, entry] : entries_) {
      if (now_s() - entry.found_at_s > kKeptFor_s) continue;
      file << key
           << " " + std::to_string(entry.found_at_s) + " " + number_text(entry.alpha_s) + " " +
                  number_text(entry.card.up_s_per_byte) + " " + number_text(entry.card.down_s_per_byte) + "\n";
    }
    if (!file.flush()) {
      std::filesystem::remove(draft, ignored);
      return;
    }
  }
  std::error_code failed;
  std::filesystem::rename(draft, file_, failed);
  if (failed) std::filesystem::remove(draft, ignored);
}

}  // namespace braid

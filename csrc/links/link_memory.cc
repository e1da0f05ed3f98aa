// SPDX-License-Identifier: Apache-2.0
#include "links/link_memory.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "base/limits.h"
#include "base/sha256.h"
#include "links/private_file.h"

namespace braid {
namespace {

constexpr int64_t kKeptFor_s = 24 * 60 * 60;

constexpr size_t kKeyDigits = 32;
const std::string kEndMark = ".";  // ends a line; a line without it was cut off

std::string key_for(const std::string& name) { return hex(sha256(bytes_of(name))).substr(0, kKeyDigits); }

int64_t now_s() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

bool is_fresh(int64_t found_at_s) { return std::abs(now_s() - found_at_s) <= kKeptFor_s; }

// The same text in every locale; it reads back as exactly the same number.
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
  const auto is_known = [&](const Cluster& cluster, const std::string& name) {
    const auto entry = cluster.find(key_for(name));
    return entry != cluster.end() && is_fresh(entry->second.found_at_s);
  };
  const Cluster* best = nullptr;
  for (const auto& [key, cluster] : clusters_) {
    const bool knows_all = std::all_of(names.begin(), names.end(),
                                       [&, &known = cluster](const auto& name) { return is_known(known, name); });
    if (knows_all && (best == nullptr || cluster.size() > best->size())) best = &cluster;
  }
  if (best == nullptr) return std::nullopt;

  std::vector<Entry> found;  // by host
  for (size_t rank = 0; rank < names.size(); ++rank) {
    if (hosts[rank] == static_cast<int>(found.size())) found.push_back(best->at(key_for(names[rank])));
  }
  Link between{found.front().alpha_s, found.front().nic.up_s_per_byte};
  for (const Entry& entry : found) {
    between.beta_s_per_byte =
        std::min({between.beta_s_per_byte, entry.nic.up_s_per_byte, entry.nic.down_s_per_byte});
  }
  Topology topology(hosts, within_host, between);
  for (size_t host = 0; host < found.size(); ++host) topology.set_nic(static_cast<int>(host), found[host].nic);
  topology.set_burst_bytes(found.front().burst_bytes);
  return topology;
}

void LinkMemory::keep(const std::vector<std::string>& names, const Topology& topology) {
  const std::lock_guard lock(mutex_);
  read_file();
  Cluster cluster;
  for (size_t rank = 0; rank < names.size(); ++rank) {
    const Topology::Nic nic = topology.nic(topology.host(static_cast<int>(rank)));
    cluster[key_for(names[rank])] = {now_s(), topology.between_hosts().alpha_s, topology.burst_bytes(), nic};
  }
  std::string members;
  for (const auto& [key, entry] : cluster) members += key;
  clusters_[key_for(members)] = std::move(cluster);
  write_file();
}

void LinkMemory::forget(const std::vector<std::string>& names) {
  const std::lock_guard lock(mutex_);
  read_file();
  std::erase_if(clusters_, [&](const auto& cluster) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return cluster.second.contains(key_for(name)); });
  });
  write_file();
}

void LinkMemory::read_file() {
  if (std::exchange(has_read_, true) || file_.empty()) return;
  std::istringstream lines(read_private_file(file_, kMostRememberedBytes).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string cluster, key, time, alpha, burst, up, down, end_mark;
    Entry entry;
    if (!(words >> cluster >> key >> time >> alpha >> burst >> up >> down >> end_mark) || end_mark != kEndMark)
      continue;
    if (cluster.size() != kKeyDigits || key.size() != kKeyDigits) continue;
    if (!parse(alpha, entry.alpha_s) || !parse(up, entry.nic.up_s_per_byte)) continue;
    if (burst != "0" && !parse(burst, entry.burst_bytes)) continue;
    if (!parse(down, entry.nic.down_s_per_byte)) continue;
    const auto [end, error] = std::from_chars(time.data(), time.data() + time.size(), entry.found_at_s);
    if (error != std::errc() || end != time.data() + time.size() || entry.found_at_s < 0) continue;
    clusters_[cluster][key] = entry;
  }
}

// Errors are ignored: without the file the links are only measured again.
void LinkMemory::write_file() const {
  if (file_.empty()) return;
  std::string text;
  for (const auto& [cluster, entries] : clusters_) {
    for (const auto& [key, entry] : entries) {
      if (!is_fresh(entry.found_at_s)) continue;
      for (const std::string& word : {cluster, key, std::to_string(entry.found_at_s), number_text(entry.alpha_s),
                                      number_text(entry.burst_bytes), number_text(entry.nic.up_s_per_byte),
                                      number_text(entry.nic.down_s_per_byte)}) {
        text += word + " ";
      }
      text += kEndMark + "\n";
    }
  }
  if (text.size() <= kMostRememberedBytes) write_private_file(file_, text);  // read_file() rejects longer files
}

}  // namespace braid

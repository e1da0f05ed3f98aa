// SPDX-License-Identifier: Apache-2.0
#include "communicator/card.h"

#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>
#include <utility>

namespace braid {
namespace {

constexpr int kWireVersion = 4;

constexpr std::array<std::pair<const char*, std::string Card::*>, 8> kFields = {{
    {"settings", &Card::settings},
    {"host", &Card::host},
    {"cores", &Card::cores},
    {"shm", &Card::shm},
    {"tcp", &Card::tcp},
    {"nonce", &Card::nonce},
    {"rates", &Card::rates},
    {"secret", &Card::secret},
}};

std::string link_target(const char* path) {
  std::array<char, 128> target{};
  const ssize_t length = ::readlink(path, target.data(), target.size());
  return length > 0 ? std::string(target.data(), static_cast<size_t>(length)) : std::string();
}

}  // namespace

std::string to_text(const Card& card) {
  std::string text;
  for (const auto& [name, field] : kFields) text += std::string(name) + "=" + card.*field + "\n";
  return text;
}

Result<Card> card_from_text(const std::string& text) {
  Card card;
  std::istringstream lines(text);
  for (const auto& [name, field] : kFields) {
    const std::string lead = std::string(name) + "=";
    std::string line;
    if (!std::getline(lines, line) || line.rfind(lead, 0) != 0) {
      return Status(Code::kMismatch,
                    "a rank left a card without \"" + lead + "\"; it may run another braid version");
    }
    card.*field = line.substr(lead.size());
  }
  return card;
}

std::string host_identity(const Options& options) {
  if (!options.host.empty()) return "set:" + options.host;
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return boot + " " + link_target("/proc/self/ns/ipc");
}

std::string shared_settings(const Options& options) {
  return "wire format " + std::to_string(kWireVersion) + ", BRAID_ALGORITHM=" + options.algorithm +
         ", BRAID_CHUNK_BYTES=" + std::to_string(options.chunk_bytes) +
         ", BRAID_WINDOW=" + std::to_string(options.window) +
         ", BRAID_LINKS=" + (options.stated ? in_words(*options.stated) : options.links) + ", " +
         std::to_string(options.aggregators) +
         " aggregators, BRAID_SERVERS=" + (options.await_servers < 0 ? "" : std::to_string(options.await_servers));
}

}  // namespace braid

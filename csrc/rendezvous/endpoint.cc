// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/endpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

namespace braid {
namespace {

constexpr int kWireFormat = 8;

constexpr std::array<std::pair<const char*, std::string RankEndpoint::*>, 8> kFields = {{
    {"settings", &RankEndpoint::settings},
    {"host", &RankEndpoint::host},
    {"cores", &RankEndpoint::cores},
    {"nonce", &RankEndpoint::nonce},
    {"rates", &RankEndpoint::rates},
    {"memory", &RankEndpoint::memory},
    {"place", &RankEndpoint::place},
    {"secret", &RankEndpoint::secret},
}};

// Before each wire's line: "wire tcp=10.0.0.1:4711".
constexpr std::string_view kWireLead = "wire ";

Status not_an_endpoint(const std::string& lacks) {
  return {Code::kMismatch, "a rank left an endpoint without \"" + lacks + "\"; it may run another braid version"};
}

// Takes the next line off the text.
std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

bool is_wire_name(std::string_view name) {
  return !name.empty() &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

// The wires must come in the order of their names, each once. `rest` is what comes after the fields.
Status read_wires(std::string_view rest, RankEndpoint& endpoint) {
  while (!rest.empty()) {
    std::string_view line = next_line(rest);
    const size_t equals = line.find('=');
    const bool is_wire =
        line.starts_with(kWireLead) && equals != std::string_view::npos && equals + 1 < line.size();
    const auto name = std::string(is_wire ? line.substr(kWireLead.size(), equals - kWireLead.size()) : "");
    const bool is_next = endpoint.wires.empty() || endpoint.wires.rbegin()->first < name;
    if (!is_wire_name(name) || !is_next) return not_an_endpoint("wire NAME=OFFER");
    endpoint.wires.emplace(name, line.substr(equals + 1));
  }
  return {};
}

std::string link_target(const char* path) {
  std::array<char, 128> target{};
  const ssize_t length = ::readlink(path, target.data(), target.size());
  return length > 0 ? std::string(target.data(), static_cast<size_t>(length)) : std::string();
}

// "" if the system has no boot id. Running out of file descriptors or memory is an error: without the id this
// process would look like a host of its own.
Result<std::string> boot_id() {
  std::array<char, 64> id{};
  const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
    return system_error("cannot read which host this is", errno);
  }
  const ssize_t length = fd < 0 ? 0 : ::read(fd, id.data(), id.size());
  if (fd >= 0) ::close(fd);
  const std::string_view text(id.data(), length > 0 ? static_cast<size_t>(length) : 0);
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace

std::string to_text(const RankEndpoint& endpoint) {
  std::string text;
  for (const auto& [name, field] : kFields) text += std::string(name) + "=" + endpoint.*field + "\n";
  for (const auto& [name, offer] : endpoint.wires) text += std::string(kWireLead) + name + "=" + offer + "\n";
  return text;
}

Result<RankEndpoint> endpoint_from_text(const std::string& text) {
  RankEndpoint endpoint;
  std::string_view rest = text;  // not a stream: a stream would hide that memory has run out
  for (const auto& [name, field] : kFields) {
    const std::string lead = std::string(name) + "=";
    const std::string_view line = next_line(rest);
    if (!line.starts_with(lead)) return not_an_endpoint(lead);
    endpoint.*field = line.substr(lead.size());
  }
  if (Status bad = read_wires(rest, endpoint); !bad.ok()) return bad;
  return endpoint;
}

std::string RankEndpoint::offer(std::string_view wire) const {
  const auto found = wires.find(std::string(wire));
  return found == wires.end() ? "" : found->second;
}

Result<std::string> host_identity(const Options& options) {
  if (!options.host.empty()) return "set:" + options.host;
  const auto boot = boot_id();
  if (!boot.ok()) return boot;
  return boot.value() + " " + link_target("/proc/self/ns/ipc");
}

std::string own_place(const Options& options) {
  std::array<char, 256> name{};
  const bool known = ::gethostname(name.data(), name.size() - 1) == 0;
  std::string host = !options.host.empty() ? options.host : known ? name.data() : "?";
  std::erase(host, '\n');  // an endpoint has a line for each field
  return host + " (pid " + std::to_string(::getpid()) + ")";
}

std::string shared_settings(const Options& options) {
  std::string text;
  const auto add = [&text](std::string_view name, std::string value) {
    std::erase_if(value, [](char each) { return each == '\t' || each == '\n'; });
    text.append(name).append("=").append(value).append("\t");
  };
  add("wire format", std::to_string(kWireFormat));
  add("BRAID_ALGORITHM", options.algorithm);
  add("BRAID_CHUNK_BYTES", options.chunk_bytes == 0 ? "" : std::to_string(options.chunk_bytes));
  add("BRAID_WINDOW", std::to_string(options.window));
  add("BRAID_TCP_CONNECTIONS", std::to_string(options.tcp_connections));
  add("BRAID_LINKS", options.stated ? in_words(*options.stated) : options.links);
  add("BRAID_SERVERS", options.await_servers < 0 ? "" : std::to_string(options.await_servers));
  add("number of aggregators", std::to_string(options.aggregators));
  return text + options.also_equal;
}

std::string difference_of(const std::string& mine, const std::string& other, int rank, int of) {
  std::string_view left = mine;
  std::string_view right = other;
  const auto next = [](std::string_view& rest) {
    const size_t end = std::min(rest.find('\t'), rest.size());
    const std::string_view setting = rest.substr(0, end);
    rest.remove_prefix(std::min(rest.size(), end + 1));
    return setting;
  };
  while (!left.empty() || !right.empty()) {
    const std::string_view here = next(left);
    const std::string_view there = next(right);
    if (here == there) continue;
    const std::string_view either = here.empty() ? there : here;
    const std::string_view name = either.substr(0, either.find('='));
    const auto value = [name](std::string_view setting) {
      const std::string_view text = setting.size() > name.size() ? setting.substr(name.size() + 1) : "";
      return text.empty() ? std::string("none") : "\"" + std::string(text) + "\"";
    };
    return std::string(name) + " differs: rank " + std::to_string(rank) + " has " + value(here) + ", rank " +
           std::to_string(of) + " has " + value(there) + ": give all ranks the same";
  }
  return "";
}

}  // namespace braid

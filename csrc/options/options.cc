// SPDX-License-Identifier: Apache-2.0
#include "options/options.h"

#include <algorithm>

#include "base/env.h"

namespace braid {
namespace {

// Limits of BRAID_PEER_TIMEOUT and BRAID_STALL_NOTICE.
constexpr milliseconds kShortestSilence{2000};
constexpr milliseconds kLongestSilence{1'000'000'000};
constexpr milliseconds kFirstNotice{100};
constexpr milliseconds kLastNotice{1'000'000'000};

std::string cache_dir() {
  if (const auto own = env_string("BRAID_CACHE_DIR")) return *own;
  if (const auto shared = env_string("XDG_CACHE_HOME")) return *shared + "/braid";
  const auto home = env_string("HOME");
  return home ? *home + "/.cache/braid" : "";
}

Result<milliseconds> peer_timeout(milliseconds fallback) {
  constexpr const char* kName = "BRAID_PEER_TIMEOUT";
  if (env_string(kName) == "never") return milliseconds(0);
  return env_seconds(kName, fallback, kShortestSilence, kLongestSilence);
}

}  // namespace

bool allows_wire(const Options& options, std::string_view wire) {
  return ("," + options.transports + ",").find("," + std::string(wire) + ",") != std::string::npos;
}

bool is_links_file(const std::string& links) { return links.ends_with(".toml"); }

Result<Options> options_from_env() {
  Options options;
  options.algorithm = env_string("BRAID_ALGORITHM").value_or("");
  options.transports = env_string("BRAID_TRANSPORTS").value_or(options.transports);
  options.interface = env_string("BRAID_INTERFACE").value_or("");
  if (const auto text = env_string("BRAID_PORTS")) {
    const auto ports = port_range_from_text(*text);
    if (!ports.ok()) return Status(ports.status().code(), "BRAID_PORTS=" + ports.status().message());
    options.ports = ports.value();
  }
  options.host = env_string("BRAID_HOST").value_or("");
  options.links = env_string("BRAID_LINKS").value_or("");
  if (!options.links.empty() && options.links != "measure" && options.links != "assume" &&
      !is_links_file(options.links)) {
    return Status(Code::kInvalidArgument,
                  "BRAID_LINKS=" + options.links + ": expected \"measure\", \"assume\" or a file named *.toml");
  }
  options.cache_dir = cache_dir();
  options.reach = env_string("MASTER_ADDR").value_or("");

  const auto connections = env_integer("BRAID_TCP_CONNECTIONS", options.tcp_connections, 1, 16);
  if (!connections.ok()) return connections.status();
  options.tcp_connections = static_cast<int>(connections.value());

  if (env_string("BRAID_CHUNK_BYTES")) {
    const auto chunk = env_integer("BRAID_CHUNK_BYTES", 0, 1024, int64_t{1} << 30);
    if (!chunk.ok()) return chunk.status();
    options.chunk_bytes = chunk.value() / 64 * 64;
  }

  const auto credit = env_integer("BRAID_CREDIT_BYTES", options.credit_bytes, 0, int64_t{1} << 40);
  if (!credit.ok()) return credit.status();
  options.credit_bytes = credit.value();

  const auto silence = peer_timeout(options.peer_timeout);
  if (!silence.ok()) return silence.status();
  options.peer_timeout = silence.value();

  const auto window = env_integer("BRAID_WINDOW", options.window, 1, 64);
  if (!window.ok()) return window.status();
  options.window = static_cast<int>(window.value());

  const auto servers = env_integer("BRAID_SERVERS", options.await_servers, 0, kMostServers);
  if (!servers.ok()) return servers.status();
  options.await_servers = static_cast<int>(servers.value());

  const auto pacing = env_integer("BRAID_PACING", 1, 0, 1);
  if (!pacing.ok()) return pacing.status();
  options.pacing = pacing.value() == 1;

  const auto copy = env_integer("BRAID_SINGLE_COPY", 1, 0, 1);
  if (!copy.ok()) return copy.status();
  options.single_copy = copy.value() == 1;

  const auto notice = env_seconds("BRAID_STALL_NOTICE", options.stall_notice, kFirstNotice, kLastNotice);
  if (!notice.ok()) return notice.status();
  options.stall_notice = notice.value();

  options.wait = env_string("BRAID_WAIT").value_or(options.wait);
  if (std::find(kWaitNames.begin(), kWaitNames.end(), options.wait) == kWaitNames.end()) {
    return Status(Code::kInvalidArgument, "BRAID_WAIT=" + options.wait + ": expected auto, spin, yield or sleep");
  }

  std::string_view rest = options.transports;
  while (!rest.empty()) {
    const std::string_view wire = rest.substr(0, rest.find(','));
    if (std::find(kWireNames.begin(), kWireNames.end(), wire) == kWireNames.end()) {
      std::string names;
      for (const std::string_view name : kWireNames) names += (names.empty() ? "" : ", ") + std::string(name);
      return Status(Code::kInvalidArgument, "BRAID_TRANSPORTS=" + options.transports + ": expected some of " +
                                                names + ", with commas between");
    }
    rest.remove_prefix(std::min(rest.size(), wire.size() + 1));
  }
  return options;
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// A rank's endpoint: what the rank writes into the store, so that the others can check its settings and reach it.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "options/options.h"

namespace braid {

struct RankEndpoint {
  std::string settings;  // the settings that must be equal on all ranks, in words
  std::string host;      // equal for ranks that may share memory
  std::string cores;     // the cores it may run on, as cores.h writes them
  std::string nonce;     // random, new in every rendezvous
  std::string rates;     // rates of its host's NIC, if a file states the links; else empty
  std::string memory;    // rates of its memory (links/memory_rates.h); empty if not measured
  std::string place;     // host and process, for messages: "node7 (pid 4711)"
  std::string secret;    // in rank 0's endpoint only: members prove by it that they belong
  // By the wire's name: the text by which the wire reaches this rank (transport/wire.h).
  std::map<std::string, std::string> wires;

  // "" if it does not offer the wire.
  std::string offer(std::string_view wire) const;

  bool operator==(const RankEndpoint&) const = default;
};

// A line for each field, then a line for each wire.
std::string to_text(const RankEndpoint& endpoint);
// kMismatch for all text that to_text() cannot have written.
Result<RankEndpoint> endpoint_from_text(const std::string& text);

// Boot id and IPC namespace of this machine, or the override.
Result<std::string> host_identity(const Options& options);
// The name of the host, or the override, and the process: "node7 (pid 4711)".
std::string own_place(const Options& options);
// The settings marked (*) in options.h, and the version of the wire format.
// The text is "NAME=value" for each setting, with a tab after each.
std::string shared_settings(const Options& options);

// Names the first setting in which two such texts differ, and both values. "" if they are equal.
std::string difference_of(const std::string& mine, const std::string& other, int rank, int of);

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "tuner/forced.h"

#include "planner/planners.h"

namespace braid {
namespace {

std::string_view trimmed(std::string_view text) {
  size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string known_collectives() {
  std::string names;
  for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
    names += (kind == 0 ? "" : ", ") + std::string(name_of(static_cast<CollectiveKind>(kind)));
  }
  return names;
}

std::string known_algorithms(CollectiveKind kind) {
  std::string names;
  for (const Algorithm& algorithm : algorithms(kind))
    names += (names.empty() ? "" : ", ") + std::string(algorithm.name);
  return names;
}

std::string all_known_algorithms() {
  std::string lists;
  for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
    auto collective = static_cast<CollectiveKind>(kind);
    lists += (kind == 0 ? "" : "; ") + std::string(name_of(collective)) + ": " + known_algorithms(collective);
  }
  return lists;
}

Status refuse(const std::string& message) { return {Code::kInvalidArgument, "algorithm: " + message}; }

}  // namespace

Result<Forced> Forced::parse(std::string_view text) {
  Forced forced;
  while (!trimmed(text).empty()) {
    size_t size = text.find(',');
    std::string_view entry = trimmed(text.substr(0, size));
    text.remove_prefix(size == std::string_view::npos ? text.size() : size + 1);
    size_t equals = entry.find('=');
    if (equals == std::string_view::npos) {
      bool known = false;
      for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
        if (find_algorithm(static_cast<CollectiveKind>(kind), entry) == nullptr) continue;
        forced.algorithms_[kind] = entry;
        known = true;
      }
      if (!known)
        return refuse("no algorithm \"" + std::string(entry) + "\"; there are " + all_known_algorithms());
      continue;
    }
    std::string_view kind_name = trimmed(entry.substr(0, equals));
    std::string_view algorithm = trimmed(entry.substr(equals + 1));
    std::optional<CollectiveKind> kind = collective_from_name(kind_name);
    if (!kind) {
      return refuse("no collective \"" + std::string(kind_name) + "\"; there are " + known_collectives());
    }
    if (find_algorithm(*kind, algorithm) == nullptr) {
      return refuse(std::string(kind_name) + " has no algorithm \"" + std::string(algorithm) + "\"; it has " +
                    known_algorithms(*kind));
    }
    forced.algorithms_[static_cast<size_t>(*kind)] = algorithm;
  }
  return forced;
}

}  // namespace braid

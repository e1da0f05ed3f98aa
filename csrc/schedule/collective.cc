// SPDX-License-Identifier: Apache-2.0
#include "schedule/collective.h"

#include <array>
#include <string>

namespace braid {
namespace {

constexpr std::array<std::string_view, kCollectiveKindCount> kNames = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
    "all_to_all", "gather",         "scatter",    "barrier"};

}  // namespace

std::string_view name_of(CollectiveKind kind) {
  auto index = static_cast<size_t>(kind);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::optional<CollectiveKind> collective_from_name(std::string_view name) {
  for (size_t index = 0; index < kNames.size(); ++index) {
    if (kNames[index] == name) return static_cast<CollectiveKind>(index);
  }
  return std::nullopt;
}

bool is_vector(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBroadcast ||
         kind == CollectiveKind::kReduce || kind == CollectiveKind::kBarrier;
}

bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter;
}

bool is_reduction(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kReduce || kind == CollectiveKind::kBarrier;
}

Status check(const Collective& collective) {
  std::string name(name_of(collective.kind));
  if (static_cast<int>(collective.kind) >= kCollectiveKindCount) {
    return {Code::kInvalidArgument, "unknown collective"};
  }
  if (collective.ranks < 1 || collective.ranks > kMaxRanks) {
    return {Code::kInvalidArgument, name + ": " + std::to_string(collective.ranks) +
                                        " ranks, must be between 1 and " + std::to_string(kMaxRanks)};
  }
  int last_root = has_root(collective.kind) ? collective.ranks - 1 : 0;
  if (collective.root < 0 || collective.root > last_root) {
    return {Code::kInvalidArgument, name + ": root " + std::to_string(collective.root) +
                                        ", must be between 0 and " + std::to_string(last_root)};
  }
  return {};
}

std::string nodes_text(int ranks, int aggregators, std::string_view of) {
  const auto counted = [](int count, std::string_view what) {
    return std::to_string(count) + " " + std::string(what) + (count == 1 ? "" : "s");
  };
  return counted(ranks, of) + (aggregators > 0 ? " and " + counted(aggregators, "aggregator") : "");
}

int input_chunks(const Collective& collective, int chunks, Node node) {
  if (node >= collective.ranks) return 0;
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
    case CollectiveKind::kBarrier: return chunks;
    case CollectiveKind::kBroadcast: return node == collective.root ? chunks : 0;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll: return collective.ranks;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather: return 1;
    case CollectiveKind::kScatter: return node == collective.root ? collective.ranks : 0;
  }
  return 0;
}

int output_chunks(const Collective& collective, int chunks, Node node) {
  if (node >= collective.ranks) return 0;
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kBarrier: return chunks;
    case CollectiveKind::kReduce: return node == collective.root ? chunks : 0;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll: return collective.ranks;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kScatter: return 1;
    case CollectiveKind::kGather: return node == collective.root ? collective.ranks : 0;
  }
  return 0;
}

}  // namespace braid

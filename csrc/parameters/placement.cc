// SPDX-License-Identifier: Apache-2.0
#include "parameters/placement.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace braid {

Result<std::vector<Extent>> place(size_t elements, size_t servers, const std::vector<double>& shares) {
  if (servers == 0) return Status(Code::kInvalidArgument, "a parameter service needs at least one server");
  std::vector<double> parts = shares.empty() ? std::vector<double>(servers, 1.0) : shares;
  if (parts.size() != servers) {
    return Status(Code::kInvalidArgument, std::to_string(parts.size()) + " shares for " + std::to_string(servers) +
                                              " servers, expected one for each");
  }
  const auto is_wrong = [](double share) { return !std::isfinite(share) || share < 0; };
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  if (std::any_of(parts.begin(), parts.end(), is_wrong) || !std::isfinite(sum) || sum <= 0) {
    return Status(Code::kInvalidArgument,
                  "shares of servers must be finite and not negative, and not all be zero");
  }
  std::vector<Extent> extents;
  double before = 0;
  size_t begin = 0;
  for (size_t i = 0; i < servers; ++i) {
    before += parts[i];
    const auto exact = static_cast<size_t>(static_cast<double>(elements) * (before / sum) + 0.5);
    const bool is_last = std::all_of(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1, parts.end(),
                                     [](double share) { return share == 0; });
    const size_t end = is_last ? elements : std::clamp(exact / kGranule * kGranule, begin, elements);
    extents.push_back({begin, end - begin});
    begin = end;
  }
  return extents;
}

std::vector<size_t> shares_for_newcomer(const std::vector<Extent>& extents, std::vector<int> homes,
                                        const std::vector<double>& weights, uint64_t most) {
  const size_t newcomer = weights.size() - 1;
  std::vector<double> held(weights.size());
  for (size_t shard = 0; shard < extents.size(); ++shard) {
    held[static_cast<size_t>(homes[shard])] += static_cast<double>(extents[shard].count);
  }
  const auto fullness = [&](size_t place, double more) {
    return held[place] + more == 0 ? 0 : (held[place] + more) / weights[place];
  };
  std::vector<size_t> chosen;
  for (;;) {
    size_t best = extents.size();
    for (size_t shard = 0; shard < extents.size(); ++shard) {
      const auto home = static_cast<size_t>(homes[shard]);
      const auto count = static_cast<double>(extents[shard].count);
      if (home == newcomer || count == 0 || held[newcomer] + count > static_cast<double>(most)) continue;
      if (fullness(newcomer, count) >= fullness(home, 0)) continue;
      if (best == extents.size() || fullness(home, 0) > fullness(static_cast<size_t>(homes[best]), 0))
        best = shard;
    }
    if (best == extents.size()) return chosen;
    const auto count = static_cast<double>(extents[best].count);
    held[static_cast<size_t>(homes[best])] -= count;
    held[newcomer] += count;
    homes[best] = static_cast<int>(newcomer);
    chosen.push_back(best);
  }
}

int successor_of(int lost, const std::vector<bool>& lives) {
  const auto n = static_cast<int>(lives.size());
  for (int step = 1; step < n; ++step) {
    const int next = (lost + step) % n;
    if (lives[static_cast<size_t>(next)]) return next;
  }
  return -1;
}

}  // namespace braid

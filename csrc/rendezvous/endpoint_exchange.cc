// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/endpoint_exchange.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "base/sha256.h"

namespace braid {
namespace {

constexpr milliseconds kShortestPause{1};
constexpr milliseconds kLongestPause{20};
constexpr milliseconds kFarewell{5'000};

std::string key_of(const std::string& prefix, const std::string& what, Node of) {
  return prefix + what + "/" + std::to_string(of);
}

std::string digest_of(const std::string& text) { return hex(sha256(bytes_of(text))).substr(0, 32); }

Status check_settings(const std::vector<RankEndpoint>& endpoints, Node rank) {
  const RankEndpoint& mine = endpoints[static_cast<size_t>(rank)];
  for (size_t node = 0; node < endpoints.size(); ++node) {
    if (endpoints[node].settings == mine.settings) continue;
    return {Code::kMismatch, difference_of(mine.settings, endpoints[node].settings, rank, static_cast<Node>(node)),
            static_cast<Node>(node)};
  }
  return {};
}

}  // namespace

Result<std::string> await(Store& store, const std::string& prefix, const std::string& what, Node of,
                          Deadline deadline) {
  // Without a deadline, wait half a minute at a time: some stores cannot wait without a limit.
  auto left = milliseconds(30'000);
  if (deadline != kNoDeadline) left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  auto value = store.get(key_of(prefix, what, of), std::max(left, milliseconds(1)));
  while (deadline == kNoDeadline && !value.ok() && value.status().code() == Code::kTimeout) {
    value = store.get(key_of(prefix, what, of), left);
  }
  if (value.ok() && value.value().size() > kMostStoreValueBytes) {
    return Status(
        Code::kMismatch,
        too_large("the " + what + " of rank " + std::to_string(of), value.value().size(), kMostStoreValueBytes),
        of);
  }
  if (value.ok() || value.status().code() != Code::kTimeout) return value;
  return Status(Code::kTimeout,
                "rank " + std::to_string(of) + " has not come to form the group (waited for its " + what + ")",
                of);
}

Result<EndpointSet> exchange_endpoints(Store& store, const std::string& prefix, Node rank, int ranks,
                                       const RankEndpoint& mine, Deadline deadline,
                                       const std::function<Status(const std::vector<RankEndpoint>&)>& prepare) {
  if (Status bad = store.set(key_of(prefix, "card", rank), to_text(mine)); !bad.ok()) return bad;
  EndpointSet seen;
  for (milliseconds pause = kShortestPause;; pause = std::min(2 * pause, kLongestPause)) {
    std::string texts;
    std::vector<RankEndpoint> endpoints;
    for (Node node = 0; node < ranks; ++node) {
      auto text = await(store, prefix, "card", node, deadline);
      if (!text.ok()) return text.status();
      auto endpoint = endpoint_from_text(text.value());
      if (!endpoint.ok()) return endpoint.status();
      texts += text.value();
      endpoints.push_back(std::move(endpoint).value());
    }
    if (std::string token = digest_of(texts); token != seen.token) {
      seen = {std::move(endpoints), std::move(token)};
      if (Status bad = prepare(seen.endpoints); !bad.ok()) return bad;
      if (Status bad = store.set(key_of(prefix, "agree", rank), seen.token); !bad.ok()) return bad;
    }
    Node other = -1;
    for (Node node = 0; node < ranks && other < 0; ++node) {
      auto token = await(store, prefix, "agree", node, deadline);
      if (!token.ok()) return token.status();
      if (token.value() != seen.token) other = node;
    }
    if (other < 0) break;
    if (Clock::now() >= deadline) {
      return Status(Code::kTimeout,
                    "rank " + std::to_string(other) +
                        " has not come to form the group (the store holds only its endpoint of an earlier one)",
                    other);
    }
    std::this_thread::sleep_for(pause);
  }
  if (Status bad = check_settings(seen.endpoints, rank); !bad.ok()) {
    return end_together(store, prefix, rank, ranks, std::move(bad));
  }
  return seen;
}

Status end_together(Store& store, const std::string& prefix, Node rank, int ranks, Status reason) {
  if (rank != 0) {
    (void)store.set(key_of(prefix, "heard", rank), "1");
    return reason;
  }
  const Deadline deadline = deadline_after(kFarewell);
  for (Node node = 1; node < ranks; ++node) {
    if (!await(store, prefix, "heard", node, deadline).ok()) break;
  }
  return reason;
}

}  // namespace braid

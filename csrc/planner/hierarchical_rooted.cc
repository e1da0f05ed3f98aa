// SPDX-License-Identifier: Apache-2.0
// Broadcast and reduce over hosts: a binomial tree between the leaders of the hosts; every leader exchanges
// messages with each other rank of its host. The root leads its own host. The first rank leads any other host.
//
//   broadcast from 0, hosts {0, 1} and {2, 3}:  round 0:  0 -> 2
//                                               round 1:  0 -> 1   2 -> 3
//   reduce is the reverse. Ranks other than the root keep partial sums in scratch: they must not write to their
//   input.
//
// Rounds: ceil(log2 H) + 1 with H hosts. The vector crosses H-1 times from host to host. One chunk.
// Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize collective operation
// performance", 2000.
#include "planner/between.h"
#include "planner/shapes.h"

namespace braid {
namespace {

std::vector<Node> leaders(const Hosts& hosts, Node root) {
  std::vector<Node> leaders;
  for (int host = 0; host < hosts.count(); ++host) leaders.push_back(hosts.ranks(host)[0]);
  leaders[hosts.of(root)] = root;
  return leaders;
}

}  // namespace

Schedule plan_hierarchical_broadcast(const Collective& collective, const Hosts& hosts) {
  Builder builder(collective, "hierarchical", 1);
  Schedule tree = plan_binomial_broadcast({collective.kind, hosts.count(), hosts.of(collective.root)});
  Between between{tree, leaders(hosts, collective.root)};
  for (size_t round = 0; round < most_rounds(tree); ++round) {
    for (int host = 0; host < hosts.count(); ++host) add_round(builder, between, host, round, Buffer::kInput);
    builder.end_round();
  }
  for (int host = 0; host < hosts.count(); ++host) {
    Node leader = between.carriers[host];
    for (Node rank : hosts.ranks(host)) {
      if (rank == leader) continue;
      builder.send(leader, output(0), rank);
      builder.recv(rank, output(0), leader);
    }
  }
  return std::move(builder).build();
}

Schedule plan_hierarchical_reduce(const Collective& collective, const Hosts& hosts) {
  Builder builder(collective, "hierarchical", 1);
  Schedule tree = plan_binomial_reduce({collective.kind, hosts.count(), hosts.of(collective.root)});
  Between between{tree, leaders(hosts, collective.root)};
  Buffer sum = hosts.count() == 1 ? Buffer::kOutput : Buffer::kScratch;
  for (int host = 0; host < hosts.count(); ++host) {
    if (hosts.size(host) == 1) continue;
    Node leader = between.carriers[host];
    std::vector<Source> sources;
    for (Node rank : hosts.ranks(host)) {
      if (rank != leader) builder.send(rank, input(0), leader);
      sources.push_back(rank == leader ? local(input(0)) : message_from(rank));
    }
    builder.reduce(leader, {sum, 0}, std::move(sources));
  }
  builder.end_round();
  for (size_t round = 0; round < most_rounds(tree); ++round) {
    for (int host = 0; host < hosts.count(); ++host) {
      add_round(builder, between, host, round, hosts.size(host) > 1 ? sum : Buffer::kInput);
    }
    builder.end_round();
  }
  return std::move(builder).build();
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// The collectives of one block per rank, over hosts. A block goes from one host to another once, not once per rank
// of the other host. On every host one rank, the carrier, receives or sends the block.
//
//   all_gather, hosts {0, 1} and {2, 3}:
//     round 0:  0 <-> 1   2 <-> 3   0 <-> 2   1 <-> 3   inside the host to all, outside to one
//     round 1:  0 <-> 1   2 <-> 3                       carriers pass on the blocks from outside
//   reduce_scatter is the reverse: on each host the carrier of a block adds up the host's contributions and sends
//     the sum to the block's owner. The owner adds the sums of all hosts. Partial sums stay in scratch.
//
// Rounds: 2. Sent out of a host with g of n ranks: all_gather g blocks per other host, reduce_scatter n-g in all.
// Traeff, "Efficient allgather for regular SMP-clusters", 2006.
#include "planner/shapes.h"
#include "schedule/builder.h"

namespace braid {

Schedule plan_hierarchical_all_gather(const Collective& collective, const Hosts& hosts) {
  Builder builder(collective, "hierarchical", collective.ranks);
  for (Node rank = 0; rank < collective.ranks; ++rank) {
    auto give = [&](Node to) {
      builder.send(rank, input(0), to);
      builder.recv(to, output(rank), rank);
    };
    for (int distance = 1; distance < hosts.count();
         ++distance) {  // every host starts with another one: no incast
      give(hosts.carrier((hosts.of(rank) + distance) % hosts.count(), rank));
    }
    for (Node near : hosts.ranks(hosts.of(rank))) {
      if (near != rank) give(near);
    }
    builder.copy(rank, output(rank), input(0));
  }
  builder.end_round();
  for (Node owner = 0; owner < collective.ranks; ++owner) {
    for (int host = 0; host < hosts.count(); ++host) {
      Node carrier = hosts.carrier(host, owner);
      for (Node rank : hosts.ranks(host)) {
        if (host == hosts.of(owner) || rank == carrier) continue;
        builder.send(carrier, output(owner), rank);
        builder.recv(rank, output(owner), carrier);
      }
    }
  }
  return std::move(builder).build();
}

Schedule plan_hierarchical_reduce_scatter(const Collective& collective, const Hosts& hosts) {
  Builder builder(collective, "hierarchical", collective.ranks);
  if (collective.ranks == 1) builder.copy(0, output(0), input(0));
  for (Node owner = 0; owner < collective.ranks; ++owner) {
    for (int host = 0; host < hosts.count(); ++host) {
      if (hosts.size(host) == 1) continue;
      Node carrier = hosts.carrier(host, owner);
      std::vector<Source> sources;
      for (Node rank : hosts.ranks(host)) {
        if (rank != carrier) builder.send(rank, input(owner), carrier);
        sources.push_back(rank == carrier ? local(input(owner)) : message_from(rank));
      }
      builder.reduce(carrier, hosts.count() == 1 ? output(0) : scratch(owner), std::move(sources));
    }
  }
  builder.end_round();
  if (hosts.count() == 1) return std::move(builder).build();
  for (Node owner = 0; owner < collective.ranks; ++owner) {
    std::vector<Source> sources;
    for (int host = 0; host < hosts.count(); ++host) {
      Node carrier = hosts.carrier(host, owner);
      Ref sum = hosts.size(host) == 1 ? input(owner) : scratch(owner);
      if (carrier != owner) builder.send(carrier, sum, owner);
      sources.push_back(carrier == owner ? local(sum) : message_from(carrier));
    }
    builder.reduce(owner, output(0), std::move(sources));
  }
  return std::move(builder).build();
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// All-reduce over hosts. The ranks of a host share the work of adding up. Then each rank runs a schedule between
// hosts on its part of the sum. Any other algorithm draws the schedule between hosts.
//
//   2 hosts x 2:  round 0:     0 <-> 1   2 <-> 3   a host's ranks swap halves: r0 and r2 keep piece 0 of its sum,
//                                                  r1 and r3 piece 1
//                 then:        0 <-> 2   1 <-> 3   all_reduce of each piece between the hosts
//                 last round:  0 <-> 1   2 <-> 3   a host's ranks swap the pieces, now final
//
// There are as many pieces as ranks on the largest host. On a host with g ranks, piece p of P belongs to local
// rank floor(p g / P). So every rank carries a run of pieces, and runs the same round of all of them as one round.
// A host with one rank runs the schedule between hosts on its input. With one rank per host there are no other
// rounds. Rounds: 2 more than the schedule between hosts. Sent out of a host: as much as its node sends in the
// schedule between hosts, in equal parts by all its ranks. Sent inside: 2(g-1)/g S per rank. Chunks: P times those
// of the schedule between hosts. Its aggregators exchange messages with the ranks that carry the pieces.
// Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy", 2019.
#include "planner/hierarchical.h"

#include <algorithm>
#include <utility>

#include "planner/between.h"
#include "planner/shapes.h"

namespace braid {
namespace {

// The shares of the schedule between hosts, repeated for each piece.
std::vector<uint64_t> repeated(std::vector<uint64_t> shares, int pieces) {
  auto too_large = [&] {
    unsigned __int128 total = 0;
    for (uint64_t share : shares) total += share;
    return total * pieces >> 63 != 0;
  };
  while (too_large()) {
    for (uint64_t& share : shares) share = share / 2 + share % 2;  // a share above 0 stays above 0
  }
  std::vector<uint64_t> all;
  for (int piece = 0; piece < pieces; ++piece) all.insert(all.end(), shares.begin(), shares.end());
  return all;
}

class Pieces {
 public:
  Pieces(const Hosts& hosts, int count, int chunks) : hosts_(hosts), count_(count), chunks_(chunks) {}

  // The carrier of this piece on every host.
  std::vector<Node> carriers(int piece) const {
    std::vector<Node> carriers;
    for (int host = 0; host < hosts_.count(); ++host) {
      carriers.push_back(hosts_.ranks(host)[int64_t{piece} * hosts_.size(host) / count_]);
    }
    return carriers;
  }
  // The chunks of the pieces that `rank` carries. Some ranks carry none if there are fewer pieces than ranks.
  Ref run(Node rank, Buffer buffer) const {
    int size = hosts_.size(hosts_.of(rank));
    auto first = [&](int64_t local) { return static_cast<int>((local * count_ + size - 1) / size); };
    int begin = first(hosts_.local(rank));
    int end = first(hosts_.local(rank) + 1);
    return {buffer, begin * chunks_, (end - begin) * chunks_};
  }

 private:
  const Hosts& hosts_;
  int count_;
  int chunks_;
};

void add_up_inside(Builder& builder, const std::vector<Node>& ranks, const Pieces& pieces) {
  for (size_t local_rank = 0; local_rank < ranks.size(); ++local_rank) {
    Node rank = ranks[local_rank];
    for (size_t distance = 1; distance < ranks.size();
         ++distance) {  // every rank starts with another one: no incast
      Node to = ranks[(local_rank + distance) % ranks.size()];
      Ref given = pieces.run(to, Buffer::kInput);
      if (given.count > 0) builder.send(rank, given, to);
    }
    Ref kept = pieces.run(rank, Buffer::kInput);
    if (kept.count == 0) continue;
    std::vector<Source> sources;
    for (Node from : ranks) sources.push_back(from == rank ? local(kept) : message_from(from));
    builder.reduce(rank, pieces.run(rank, Buffer::kOutput), std::move(sources));
  }
}

void hand_out_inside(Builder& builder, const std::vector<Node>& ranks, const Pieces& pieces) {
  for (size_t local_rank = 0; local_rank < ranks.size(); ++local_rank) {
    Ref run = pieces.run(ranks[local_rank], Buffer::kOutput);
    if (run.count == 0) continue;
    for (size_t distance = 1; distance < ranks.size(); ++distance) {
      Node to = ranks[(local_rank + distance) % ranks.size()];
      builder.send(ranks[local_rank], run, to);
      builder.recv(to, run, ranks[local_rank]);
    }
  }
}

template <class Draw>
Schedule drawn(const Collective& collective, const Hosts& hosts, const std::string& algorithm, const Draw& draw) {
  Schedule between = draw(Collective{CollectiveKind::kAllReduce, hosts.count(), 0});
  int64_t room = std::min(kMaxChunks, kMaxChunksOfAllNodes / (collective.ranks + between.aggregators()));
  int pieces = static_cast<int>(std::clamp<int64_t>(room / between.chunks, 1, hosts.most()));
  return compose_all_reduce(collective, hosts, between, pieces, algorithm);
}

}  // namespace

Schedule compose_all_reduce(const Collective& collective, const Hosts& hosts, const Schedule& between, int pieces,
                            const std::string& algorithm) {
  Builder builder(collective, algorithm, pieces * between.chunks, between.aggregators());
  builder.set_shares(repeated(between.shares, pieces));
  Pieces cut(hosts, pieces, between.chunks);
  for (int host = 0; host < hosts.count(); ++host) {
    if (hosts.size(host) > 1) add_up_inside(builder, hosts.ranks(host), cut);
  }
  builder.end_round();
  for (size_t round = 0; round < most_rounds(between); ++round) {
    for (int piece = 0; piece < pieces; ++piece) {
      Between part{between, cut.carriers(piece), piece * between.chunks};
      for (int k = 0; k < between.aggregators(); ++k) part.carriers.push_back(collective.ranks + k);
      for (int node = 0; node < between.nodes(); ++node) {
        // A verified schedule is also right in place, so the sum in the output may serve as its input.
        const bool summed = node < hosts.count() && hosts.size(node) > 1;
        add_round(builder, part, node, round, summed ? Buffer::kOutput : Buffer::kInput);
      }
    }
    builder.end_round();
  }
  for (int host = 0; host < hosts.count(); ++host) hand_out_inside(builder, hosts.ranks(host), cut);
  return std::move(builder).build();
}

Schedule plan_hierarchical_ring(const Collective& collective, const Hosts& hosts) {
  return drawn(collective, hosts, "hierarchical_ring",
               [&](const Collective& between) { return plan_ring_all_reduce(between, Hosts(between.ranks)); });
}

Schedule plan_hierarchical_doubling(const Collective& collective, const Hosts& hosts) {
  return drawn(collective, hosts, "hierarchical_doubling", plan_doubling);
}

Schedule plan_hierarchical_halving_doubling(const Collective& collective, const Hosts& hosts) {
  return drawn(collective, hosts, "hierarchical_halving_doubling", plan_halving_doubling);
}

Result<Schedule> plan_hierarchical_direct(const Collective& collective, const PlanOptions& options) {
  Hosts hosts(collective.ranks, options.hosts);
  const size_t owners = static_cast<size_t>(hosts.count()) + static_cast<size_t>(options.aggregators);
  if (!options.shares.empty() && options.shares.size() != owners) {
    return Status(Code::kInvalidArgument, "hierarchical_direct: " + std::to_string(options.shares.size()) +
                                              " shares for " +
                                              nodes_text(hosts.count(), options.aggregators, "host"));
  }
  return drawn(collective, hosts, "hierarchical_direct", [&](const Collective& between) {
    return plan_direct_all_reduce(between, {options.shares, {}, options.aggregators}).value();
  });
}

}  // namespace braid

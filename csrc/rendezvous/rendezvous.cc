// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/rendezvous.h"

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "base/sha256.h"
#include "links/memory_rates.h"
#include "rendezvous/cores.h"
#include "rendezvous/endpoint_exchange.h"
#include "rendezvous/reach.h"

namespace braid {
namespace {

constexpr size_t kNonceBytes = 16;
constexpr size_t kSecretBytes = kSecretDigits / 2;

// What the functions of this file share during one rendezvous.
struct Rendezvous {
  Store& store;
  const Node rank;
  const int ranks;
  const std::string prefix;
  const Options& options;
  Mailbox& mailbox;
  const Deadline deadline;
};

Result<std::string> random_hex(size_t bytes) {
  std::vector<std::byte> random(bytes);
  if (Status bad = fill_random(random); !bad.ok()) return bad;
  return hex(random);
}

// Makes what the wires of this rank need to be reached, and the endpoint that describes it.
Result<RankEndpoint> make_endpoint(const Rendezvous& m, const Wires& wires) {
  RankEndpoint endpoint;
  endpoint.settings = shared_settings(m.options);
  auto host = host_identity(m.options);
  if (!host.ok()) return host.status();
  endpoint.host = std::move(host).value();
  endpoint.place = own_place(m.options);
  endpoint.cores = usable_cores();
  if (m.options.stated) endpoint.rates = to_text(m.options.stated->nic);
  if (m.options.links != "assume") endpoint.memory = memory_text(memory_rates());
  auto nonce = random_hex(kNonceBytes);
  if (!nonce.ok()) return nonce.status();
  endpoint.nonce = std::move(nonce).value();
  if (m.rank == 0) {
    auto secret = random_hex(kSecretBytes);
    if (!secret.ok()) return secret.status();
    endpoint.secret = std::move(secret).value();
  }
  for (const auto& wire : wires.list) {
    auto offer = wire->offer();
    if (!offer.ok()) return offer.status();
    endpoint.wires.emplace(wire->name(), std::move(offer).value());
  }
  return endpoint;
}

// Each rank as the wire sees it.
std::vector<WirePeer> peers_of(const Wire& wire, const std::vector<RankEndpoint>& endpoints, Node rank) {
  std::vector<WirePeer> peers;
  for (const RankEndpoint& endpoint : endpoints) {
    peers.push_back({endpoint.offer(wire.name()), endpoint.host == endpoints[static_cast<size_t>(rank)].host});
  }
  return peers;
}

// Makes this rank reachable by all wires, for members that know the secret in rank 0's endpoint.
Status join(const Rendezvous& m, const std::string& name, const std::vector<RankEndpoint>& endpoints,
            const Wires& wires) {
  const RankEndpoint& first = endpoints[0];
  for (const auto& wire : wires.list) {
    Status bad = wire->join(name + "/" + first.nonce, first.secret, peers_of(*wire, endpoints, m.rank));
    if (!bad.ok()) return bad;
  }
  return {};
}

std::vector<int> number_hosts(const std::vector<RankEndpoint>& endpoints) {
  std::vector<int> hosts;
  std::vector<std::string> seen;
  for (const RankEndpoint& endpoint : endpoints) {
    auto found = std::find(seen.begin(), seen.end(), endpoint.host);
    if (found == seen.end()) found = seen.insert(seen.end(), endpoint.host);
    hosts.push_back(static_cast<int>(found - seen.begin()));
  }
  return hosts;
}

// A host reaches the others by another link from each of its NICs.
std::string address_of(const RankEndpoint& endpoint, const Wires& wires) {
  std::string address = endpoint.host;
  for (const auto& wire : wires.list) {
    const std::string nic = wire->nic_of(endpoint.offer(wire->name()));
    if (!nic.empty()) address += " " + nic;
  }
  return address;
}

// The rates that each rank states of its host's NIC. Settings are equal, so all ranks state rates, or none does.
Result<std::vector<Topology::Nic>> stated_rates(const Options& options,
                                                const std::vector<RankEndpoint>& endpoints) {
  std::vector<Topology::Nic> rates;
  for (size_t rank = 0; options.stated && rank < endpoints.size(); ++rank) {
    auto one = nic_from_text(endpoints[rank].rates);
    if (!one.ok()) return one.status().within("the endpoint of rank " + std::to_string(rank));
    rates.push_back(one.value());
  }
  return rates;
}

Result<Topology::Work> memory_of(const std::vector<RankEndpoint>& endpoints) {
  std::vector<Topology::Work> ranks;
  for (size_t rank = 0; rank < endpoints.size(); ++rank) {
    auto one = memory_from_text(endpoints[rank].memory);
    if (!one.ok()) return one.status().within("the endpoint of rank " + std::to_string(rank));
    ranks.push_back(std::move(one).value());
  }
  return median_of(ranks);
}

// Counts the ranks that share a core. Ranks of other hosts count too, if the hosts are containers of one machine.
void expect_neighbours(EngineImpl& engine, const std::vector<RankEndpoint>& endpoints, Node rank, Wires& wires) {
  std::vector<Place> places;
  for (const RankEndpoint& endpoint : endpoints) places.push_back({endpoint.host, endpoint.cores});
  const auto crowds = crowds_of(places);
  const Crowd& own = crowds.at(machine_of(endpoints[static_cast<size_t>(rank)].host));
  engine.expect_local_ranks(own.ranks, own.cores.size());
  wires.ranks_per_core = own.ranks_per_core();
  wires.most_ranks_per_core = most_ranks_per_core(crowds);
}

// Finds what each wire reaches. The ranks tell each other through the store.
Result<std::vector<Reaches>> reaches_of_all(const Rendezvous& m, const EndpointSet& set, const Wires& wires) {
  std::vector<Reaches> all;
  for (const auto& wire : wires.list) {
    auto found = find_reaches(*wire, m.store, m.prefix + set.token + "/", m.rank,
                              peers_of(*wire, set.endpoints, m.rank), m.deadline);
    if (!found.ok()) return found.status();
    all.push_back(std::move(found).value());
  }
  return all;
}

// Gives the mailbox a channel to the peer, over the first wire that joins the two ranks.
Status attach_peer(const Rendezvous& m, Node peer, const RankEndpoint& endpoint,
                   const std::vector<Reaches>& reaches, Wires& wires) {
  std::string failed;    // why the wires before could not be used although both ranks offer them
  std::string excluded;  // why no wire can
  for (size_t i = 0; i < wires.list.size(); ++i) {
    Wire& wire = *wires.list[i];
    const std::string name(wire.name());
    if (reaches[i].joins(peer)) {
      const std::string offer = endpoint.offer(name);
      auto channel = wire.connect(peer, offer, reaches[i].theirs(peer));
      if (!channel.ok()) return channel.status();
      m.mailbox.attach(peer, std::move(channel).value());
      wires.descriptions[static_cast<size_t>(peer)] = rank_text(peer) + ": " + wire.describe(peer, offer) + failed;
      return {};
    }
    const Refusal& refusal = reaches[i].refusals[static_cast<size_t>(peer)];
    if (refusal.was_tried) failed += " (no " + name + ": " + refusal.why + ")";
    excluded += name + ": " + refusal.why + ", ";
  }
  return {Code::kUnsupported,
          "no wire joins ranks " + std::to_string(m.rank) + " and " + std::to_string(peer) + ": " + excluded +
              "and no other wire is allowed by BRAID_TRANSPORTS=" + m.options.transports,
          peer};
}

}  // namespace

Status run_rendezvous(EngineImpl& engine, Store& store, Node rank, int ranks, const std::string& name,
                      const Options& options, Mailbox& mailbox, Wires& wires) {
  wires.descriptions.assign(static_cast<size_t>(ranks), "");
  wires.descriptions[static_cast<size_t>(rank)] = "rank " + std::to_string(rank) + ": this process";
  wires.hosts.assign(static_cast<size_t>(ranks), 0);
  if (ranks == 1) return {};

  const Rendezvous m{store, rank, ranks, "braid/" + name + "/", options, mailbox, deadline_after(options.timeout)};
  auto mine = make_endpoint(m, wires);
  if (!mine.ok()) return mine.status();
  auto endpoint_set = exchange_endpoints(
      store, m.prefix, rank, ranks, mine.value(), m.deadline,
      [&](const std::vector<RankEndpoint>& endpoints) { return join(m, name, endpoints, wires); });
  if (!endpoint_set.ok()) return endpoint_set.status();
  const std::vector<RankEndpoint>& endpoints = endpoint_set.value().endpoints;
  wires.hosts = number_hosts(endpoints);
  for (const RankEndpoint& endpoint : endpoints) {
    wires.host_addresses.push_back(address_of(endpoint, wires));
    wires.places.push_back(endpoint.place);
  }
  auto rates = stated_rates(options, endpoints);
  if (!rates.ok()) return end_together(store, m.prefix, rank, ranks, rates.status());
  wires.rates = std::move(rates).value();
  auto memory = memory_of(endpoints);
  if (!memory.ok()) return end_together(store, m.prefix, rank, ranks, memory.status());
  wires.memory = std::move(memory).value();
  expect_neighbours(engine, endpoints, rank, wires);

  auto reaches = reaches_of_all(m, endpoint_set.value(), wires);
  if (!reaches.ok()) return reaches.status();
  for (Node node = 0; node < ranks; ++node) {
    if (node == rank) continue;
    mailbox.set_name(node, rank_text(node) + " on " + endpoints[static_cast<size_t>(node)].place);
    if (Status bad = attach_peer(m, node, endpoints[static_cast<size_t>(node)], reaches.value(), wires);
        !bad.ok()) {
      return bad;
    }
  }
  for (size_t i = 0; i < wires.list.size(); ++i) {
    Wire& wire = *wires.list[i];
    wire.settle();
    if (auto shared = wire.share_board(reaches.value()[i].rows, wires.ranks_per_core > 1); shared.board) {
      wires.board = std::move(shared.board);
      wires.readable = shared.readable;
    }
    if (auto* word = wire.stream_word()) mailbox.publish_at(wires.stream_word = word);
  }
  return {};
}

NicRates Wires::take_rates() {
  NicRates sum;
  for (const auto& wire : list) {
    const NicRates one = wire->take_rates();
    sum = {sum.up_bytes_per_s + one.up_bytes_per_s, sum.down_bytes_per_s + one.down_bytes_per_s};
  }
  return sum;
}

void Wires::leave() {
  for (const auto& wire : list) wire->leave();
}

void Wires::wait_for_last_words(Deadline deadline) {
  for (const auto& wire : list) wire->wait_for_last_words(deadline);
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/rendezvous.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/random.h"
#include "base/sha256.h"
#include "rendezvous/cores.h"
#include "rendezvous/endpoint_exchange.h"

namespace braid {
namespace {

constexpr size_t kNonceBytes = 16;
constexpr size_t kSecretBytes = kSecretDigits / 2;

bool offers(const Options& options, const std::string& wire) {
  return ("," + options.transports + ",").find("," + wire + ",") != std::string::npos;
}

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

// Makes the shared memory and the listener of this rank, and the endpoint that describes them.
Result<RankEndpoint> make_endpoint(const Rendezvous& m, EngineImpl& engine, Wires& wires) {
  RankEndpoint endpoint;
  endpoint.settings = shared_settings(m.options);
  auto host = host_identity(m.options);
  if (!host.ok()) return host.status();
  endpoint.host = std::move(host).value();
  endpoint.place = own_place(m.options);
  endpoint.cores = usable_cores();
  if (m.options.stated) endpoint.rates = to_text(m.options.stated->nic);
  auto nonce = random_hex(kNonceBytes);
  if (!nonce.ok()) return nonce.status();
  endpoint.nonce = std::move(nonce).value();
  if (m.rank == 0) {
    auto secret = random_hex(kSecretBytes);
    if (!secret.ok()) return secret.status();
    endpoint.secret = std::move(secret).value();
  }
  if (offers(m.options, "shm")) {
    ShmOptions shm;
    shm.single_copy = m.options.single_copy;
    auto group = ShmGroup::create(m.rank, m.ranks, engine.shm_bell(), engine.deaths(), shm);
    if (!group.ok()) return group.status();
    wires.shm = std::move(group).value();
    endpoint.shm = wires.shm->endpoint();
  }
  if (offers(m.options, "tcp")) {
    auto listener = engine.tcp();
    if (!listener.ok()) return listener.status();
    endpoint.tcp = listener.value()->address();
  }
  return endpoint;
}

// Makes this rank reachable by TCP, for members that know the secret in rank 0's endpoint.
Status join_tcp(const Rendezvous& m, EngineImpl& engine, const std::string& name, const RankEndpoint& first,
                Wires& wires) {
  if (!offers(m.options, "tcp")) return {};
  auto listener = engine.tcp();
  if (!listener.ok()) return listener.status();
  if (wires.tcp) wires.tcp->leave();
  auto joined = listener.value()->join(name + "/" + first.nonce, first.secret, m.rank, m.ranks, m.mailbox);
  if (!joined.ok()) return joined.status();
  wires.tcp = std::move(joined).value();
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

// A host reaches the others by another link from each of its addresses. The port is left out: it changes every time.
std::string address_of(const RankEndpoint& endpoint) {
  return endpoint.host + " " + endpoint.tcp.substr(0, endpoint.tcp.rfind(':'));
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

// How a rank reaches the memory of one peer. Ranks write a row with a character for each peer.
enum class Reach : char { kNone = '-', kMapped = 'm', kReadable = 'r' };

struct Reaches {
  std::string mine;                 // this rank's row
  std::vector<std::string> theirs;  // by peer: the row of a peer on this host
  std::vector<std::string> refusals;
};

// Peers of this host try to read this process once all ranks have confirmed the endpoints. So permit them before.
void permit_neighbours(const Rendezvous& m, const std::vector<RankEndpoint>& endpoints, Wires& wires) {
  if (!wires.shm) return;
  std::vector<std::string> neighbours;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    const bool near = endpoints[i].host == endpoints[static_cast<size_t>(m.rank)].host;
    if (near && static_cast<Node>(i) != m.rank && !endpoints[i].shm.empty())
      neighbours.push_back(endpoints[i].shm);
  }
  wires.shm->permit(neighbours);
}

// A rank's row, then a line for each peer whose memory it could not map: the peer's number and the reason.
std::string to_text(const Reaches& reaches) {
  std::string text = reaches.mine;
  for (size_t peer = 0; peer < reaches.refusals.size(); ++peer) {
    if (!reaches.refusals[peer].empty()) text += "\n" + std::to_string(peer) + " " + reaches.refusals[peer];
  }
  return text;
}

// Stores a peer's row. Also stores the peer's reason, unless this rank has its own. False if there is no row.
bool take_reach(const std::string& text, Node from, Node rank, Reaches& reaches) {
  const size_t n = reaches.mine.size();
  if (text.size() < n || (text.size() > n && text[n] != '\n')) return false;
  reaches.theirs[static_cast<size_t>(from)] = text.substr(0, n);
  std::string& refusal = reaches.refusals[static_cast<size_t>(from)];
  const std::string lead = "\n" + std::to_string(rank) + " ";
  if (const size_t found = text.find(lead, n); refusal.empty() && found != std::string::npos) {
    const size_t begin = found + lead.size();
    refusal = rank_text(from) + " says: " + text.substr(begin, text.find('\n', begin) - begin);
  }
  return true;
}

// Finds the peers on this host: both sides try to map each other's memory.
Result<Reaches> probe_host(const Rendezvous& m, const EndpointSet& endpoint_set, ShmGroup* shm) {
  const std::vector<RankEndpoint>& endpoints = endpoint_set.endpoints;
  const auto n = static_cast<size_t>(m.ranks);
  Reaches reaches{std::string(n, static_cast<char>(Reach::kNone)), std::vector<std::string>(n),
                  std::vector<std::string>(n)};
  const RankEndpoint& own = endpoints[static_cast<size_t>(m.rank)];
  std::vector<Node> neighbours;
  for (Node node = 0; node < m.ranks; ++node) {
    const RankEndpoint& endpoint = endpoints[static_cast<size_t>(node)];
    if (node == m.rank || shm == nullptr || endpoint.shm.empty() || endpoint.host != own.host) continue;
    neighbours.push_back(node);
    if (const Status bad = shm->connect(node, endpoint.shm); !bad.ok()) {
      reaches.refusals[static_cast<size_t>(node)] = bad.message();
    } else {
      reaches.mine[static_cast<size_t>(node)] =
          static_cast<char>(shm->can_read(node) ? Reach::kReadable : Reach::kMapped);
    }
  }
  if (neighbours.empty()) return reaches;
  const std::string prefix = m.prefix + endpoint_set.token + "/";
  if (Status bad = m.store.set(prefix + "reach/" + std::to_string(m.rank), to_text(reaches)); !bad.ok())
    return bad;
  for (const Node node : neighbours) {
    auto theirs = await(m.store, prefix, "reach", node, m.deadline);
    if (!theirs.ok()) return theirs.status();
    if (!take_reach(theirs.value(), node, m.rank, reaches)) {
      return Status(Code::kMismatch, "rank " + std::to_string(node) + " left no reach for this group's size",
                    node);
    }
  }
  return reaches;
}

// The least reach between any two ranks. All ranks see the same rows, so all get the same result.
Reach common_reach(const Rendezvous& m, const std::vector<RankEndpoint>& endpoints, const Reaches& reaches) {
  Reach common = Reach::kReadable;
  for (Node node = 0; node < m.ranks; ++node) {
    const auto i = static_cast<size_t>(node);
    const std::string& row = node == m.rank ? reaches.mine : reaches.theirs[i];
    if (endpoints[i].host != endpoints[0].host || endpoints[i].shm.empty() || row.empty()) return Reach::kNone;
    for (size_t peer = 0; peer < row.size(); ++peer) {
      if (peer == i) continue;
      if (row[peer] == static_cast<char>(Reach::kNone)) return Reach::kNone;
      if (row[peer] != static_cast<char>(Reach::kReadable)) common = Reach::kMapped;
    }
  }
  return common;
}

// Permits only the peers that will read this process.
void permit_readers_only(const Rendezvous& m, const Reaches& reaches, Wires& wires) {
  std::vector<Node> readers;
  for (Node node = 0; node < m.ranks; ++node) {
    const std::string& theirs = reaches.theirs[static_cast<size_t>(node)];
    const bool reads_me =
        !theirs.empty() && theirs[static_cast<size_t>(m.rank)] == static_cast<char>(Reach::kReadable);
    if (reads_me && reaches.mine[static_cast<size_t>(node)] != static_cast<char>(Reach::kNone))
      readers.push_back(node);
  }
  if (wires.shm) wires.shm->permit_only(readers);
}

Status attach_peer(const Rendezvous& m, Node node, const RankEndpoint& endpoint, const Reaches& reaches,
                   Wires& wires) {
  const auto i = static_cast<size_t>(node);
  const auto reach_of = [](const std::string& row, Node of) {
    return row.empty() ? Reach::kNone : static_cast<Reach>(row[static_cast<size_t>(of)]);
  };
  const Reach mine = reach_of(reaches.mine, node);
  const Reach theirs = reach_of(reaches.theirs[i], m.rank);
  std::string line = "rank " + std::to_string(node) + ": ";
  if (mine != Reach::kNone && theirs != Reach::kNone) {
    m.mailbox.attach(node, wires.shm->channel(node, m.mailbox, theirs == Reach::kReadable));
    line += mine == Reach::kReadable ? "shm, single copy" : "shm, copied through a ring";
  } else if (wires.tcp && !endpoint.tcp.empty()) {
    auto channel = wires.tcp->channel(node, endpoint.tcp);
    if (!channel.ok()) return channel.status();
    m.mailbox.attach(node, std::move(channel).value());
    line += "tcp " + endpoint.tcp;
    if (!reaches.refusals[i].empty()) line += " (no shared memory: " + reaches.refusals[i] + ")";
  } else {
    return {Code::kUnsupported,
            "no wire joins ranks " + std::to_string(m.rank) + " and " + std::to_string(node) + ": " +
                (reaches.refusals[i].empty() ? "they are not on one host" : reaches.refusals[i]) +
                ", and tcp is not allowed by BRAID_TRANSPORTS=" + m.options.transports,
            node};
  }
  wires.descriptions[i] = line;
  return {};
}

}  // namespace

Status run_rendezvous(EngineImpl& engine, Store& store, Node rank, int ranks, const std::string& name,
                      const Options& options, Mailbox& mailbox, Wires& wires) {
  wires.descriptions.assign(static_cast<size_t>(ranks), "");
  wires.descriptions[static_cast<size_t>(rank)] = "rank " + std::to_string(rank) + ": this process";
  wires.hosts.assign(static_cast<size_t>(ranks), 0);
  if (ranks == 1) return {};

  const Rendezvous m{store, rank, ranks, "braid/" + name + "/", options, mailbox, deadline_after(options.timeout)};
  auto mine = make_endpoint(m, engine, wires);
  if (!mine.ok()) return mine.status();
  auto endpoint_set = exchange_endpoints(store, m.prefix, rank, ranks, mine.value(), m.deadline,
                                         [&](const std::vector<RankEndpoint>& endpoints) {
                                           permit_neighbours(m, endpoints, wires);
                                           return join_tcp(m, engine, name, endpoints[0], wires);
                                         });
  if (!endpoint_set.ok()) return endpoint_set.status();
  const std::vector<RankEndpoint>& endpoints = endpoint_set.value().endpoints;
  wires.hosts = number_hosts(endpoints);
  for (const RankEndpoint& endpoint : endpoints) {
    wires.host_addresses.push_back(address_of(endpoint));
    wires.places.push_back(endpoint.place);
  }
  auto rates = stated_rates(options, endpoints);
  if (!rates.ok()) return rates.status();
  wires.rates = std::move(rates).value();
  expect_neighbours(engine, endpoints, rank, wires);

  auto reaches = probe_host(m, endpoint_set.value(), wires.shm.get());
  if (!reaches.ok()) return reaches.status();
  permit_readers_only(m, reaches.value(), wires);
  for (Node node = 0; node < ranks; ++node) {
    if (node == rank) continue;
    mailbox.set_name(node, rank_text(node) + " on " + endpoints[static_cast<size_t>(node)].place);
    if (Status bad = attach_peer(m, node, endpoints[static_cast<size_t>(node)], reaches.value(), wires);
        !bad.ok()) {
      return bad;
    }
  }
  const Reach common = common_reach(m, endpoints, reaches.value());
  if (common != Reach::kNone) wires.board = wires.shm->board(wires.ranks_per_core > 1);
  wires.readable = common == Reach::kReadable;
  return {};
}

}  // namespace braid

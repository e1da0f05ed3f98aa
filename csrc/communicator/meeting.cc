// SPDX-License-Identifier: Apache-2.0
#include "communicator/meeting.h"

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "communicator/card.h"

namespace braid {
namespace {

constexpr size_t kSecretBytes = 32;

bool offers(const Options& options, const std::string& wire) {
  return ("," + options.transports + ",").find("," + wire + ",") != std::string::npos;
}

// One meeting: the parts of meet() share these.
struct Meeting {
  EngineImpl& engine;
  Store& store;
  const Node rank;
  const int ranks;
  const std::string prefix;
  const Options& options;
  Mailbox& mailbox;
  const Deadline deadline;

  std::string key(const std::string& what, Node of) const { return prefix + what + "/" + std::to_string(of); }

  Result<std::string> get(const std::string& what, Node of) const {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    auto value = store.get(key(what, of), std::max(left, milliseconds(1)));
    if (value.ok() || value.status().code() != Code::kTimeout) return value;
    return Status(Code::kTimeout,
                  "rank " + std::to_string(of) + " has not come to form the group (waited for its " + what + ")",
                  of);
  }
};

Result<std::string> shared_secret(const Meeting& m) {
  if (m.rank != 0) return m.get("secret", 0);
  std::string secret(kSecretBytes, '\0');
  if (Status bad = fill_random({reinterpret_cast<std::byte*>(secret.data()), secret.size()}); !bad.ok())
    return bad;
  if (Status bad = m.store.set(m.key("secret", 0), secret); !bad.ok()) return bad;
  return secret;
}

Result<std::vector<Card>> exchange_cards(const Meeting& m, const Card& mine) {
  if (Status bad = m.store.set(m.key("card", m.rank), to_text(mine)); !bad.ok()) return bad;
  std::vector<Card> cards;
  for (Node node = 0; node < m.ranks; ++node) {
    auto text = m.get("card", node);
    if (!text.ok()) return text.status();
    auto card = card_from_text(text.value());
    if (!card.ok()) return card.status();
    if (card.value().settings != mine.settings) {
      return Status(Code::kMismatch,
                    "settings must be equal on all ranks, but rank " + std::to_string(m.rank) + " has " +
                        mine.settings + " and rank " + std::to_string(node) + " has " + card.value().settings,
                    node);
    }
    cards.push_back(std::move(card).value());
  }
  return cards;
}

std::vector<int> number_hosts(const std::vector<Card>& cards) {
  std::vector<int> hosts;
  std::vector<std::string> seen;
  for (const Card& card : cards) {
    auto found = std::find(seen.begin(), seen.end(), card.host);
    if (found == seen.end()) found = seen.insert(seen.end(), card.host);
    hosts.push_back(static_cast<int>(found - seen.begin()));
  }
  return hosts;
}

// What this rank found out about sharing memory with each peer, as one character per rank.
enum class Reach : char { kNone = '-', kMapped = 'm', kReadable = 'r' };

struct Reaches {
  std::string mine;                 // of this rank, by peer
  std::vector<std::string> theirs;  // of each peer on this host, by peer
  std::vector<std::string> refusals;
};

// The locality probe: who is on this host is decided by really mapping its memory, on both sides.
Result<Reaches> probe_host(const Meeting& m, const std::vector<Card>& cards, ShmGroup* shm) {
  const auto n = static_cast<size_t>(m.ranks);
  Reaches reaches{std::string(n, static_cast<char>(Reach::kNone)), std::vector<std::string>(n),
                  std::vector<std::string>(n)};
  const Card& own = cards[static_cast<size_t>(m.rank)];
  std::vector<Node> neighbours;
  for (Node node = 0; node < m.ranks; ++node) {
    const Card& card = cards[static_cast<size_t>(node)];
    if (node == m.rank || shm == nullptr || card.shm.empty() || card.host != own.host) continue;
    neighbours.push_back(node);
    if (const Status bad = shm->connect(node, card.shm); !bad.ok()) {
      reaches.refusals[static_cast<size_t>(node)] = bad.message();
    } else {
      reaches.mine[static_cast<size_t>(node)] =
          static_cast<char>(shm->can_read(node) ? Reach::kReadable : Reach::kMapped);
    }
  }
  if (neighbours.empty()) return reaches;
  if (Status bad = m.store.set(m.key("reach", m.rank), reaches.mine); !bad.ok()) return bad;
  for (const Node node : neighbours) {
    auto theirs = m.get("reach", node);
    if (!theirs.ok()) return theirs.status();
    if (theirs.value().size() != n) {
      return Status(Code::kMismatch, "rank " + std::to_string(node) + " left no reach for this group's size",
                    node);
    }
    reaches.theirs[static_cast<size_t>(node)] = std::move(theirs).value();
  }
  return reaches;
}

Status attach_peer(const Meeting& m, Node node, const Card& card, const Reaches& reaches, Wires& wires) {
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
  } else if (wires.tcp && !card.tcp.empty()) {
    auto channel = wires.tcp->channel(node, card.tcp);
    if (!channel.ok()) return channel.status();
    m.mailbox.attach(node, std::move(channel).value());
    line += "tcp " + card.tcp;
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

Status meet(EngineImpl& engine, Store& store, Node rank, int ranks, const std::string& name,
            const Options& options, Mailbox& mailbox, Wires& wires) {
  wires.descriptions.assign(static_cast<size_t>(ranks), "");
  wires.descriptions[static_cast<size_t>(rank)] = "rank " + std::to_string(rank) + ": this process";
  wires.hosts.assign(static_cast<size_t>(ranks), 0);
  if (ranks == 1) return {};

  const Meeting m{
      engine, store, rank, ranks, "braid/" + name + "/", options, mailbox, deadline_after(options.timeout)};
  auto secret = shared_secret(m);
  if (!secret.ok()) return secret.status();

  Card mine{shared_settings(options), host_identity(options), "", ""};
  if (offers(options, "shm")) {
    ShmOptions shm;
    shm.single_copy = options.single_copy;
    auto group = ShmGroup::create(rank, ranks, engine.shm_bell(), engine.deaths(), shm);
    if (!group.ok()) return group.status();
    wires.shm = std::move(group).value();
    mine.shm = wires.shm->card();
  }
  if (offers(options, "tcp")) {
    auto endpoint = engine.tcp();
    if (!endpoint.ok()) return endpoint.status();
    auto joined = endpoint.value()->join(name, secret.value(), rank, ranks, mailbox);
    if (!joined.ok()) return joined.status();
    wires.tcp = std::move(joined).value();
    mine.tcp = endpoint.value()->address();
  }

  auto cards = exchange_cards(m, mine);
  if (!cards.ok()) return cards.status();
  wires.hosts = number_hosts(cards.value());
  const int own_host = wires.hosts[static_cast<size_t>(rank)];
  engine.expect_local_ranks(static_cast<int>(std::count(wires.hosts.begin(), wires.hosts.end(), own_host)));

  auto reaches = probe_host(m, cards.value(), wires.shm.get());
  if (!reaches.ok()) return reaches.status();
  for (Node node = 0; node < ranks; ++node) {
    if (node == rank) continue;
    if (Status bad = attach_peer(m, node, cards.value()[static_cast<size_t>(node)], reaches.value(), wires);
        !bad.ok()) {
      return bad;
    }
  }
  return {};
}

}  // namespace braid

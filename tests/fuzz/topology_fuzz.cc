// SPDX-License-Identifier: Apache-2.0
// Reads any text as a topology. What is accepted comes back the same from its own text, and answers every question.
#include <cmath>

#include "fuzz/targets.h"
#include "topology/topology.h"

namespace braid::fuzz {
namespace {

constexpr int kMostNodes = 12;  // whose links are all looked at

bool is_amount(double value) { return value >= 0 && std::isfinite(value); }

void look_at_links(const Topology& topology) {
  for (int from = 0; from < topology.nodes(); ++from) {
    const Topology::Nic nic = topology.nic(topology.host(from));
    require(is_amount(nic.up_s_per_byte) && is_amount(nic.down_s_per_byte), "NICs have finite rates");
    for (int to = 0; to < topology.nodes(); ++to) {
      if (from == to) continue;
      const Link link = topology.link(from, to);
      require(is_amount(link.alpha_s) && is_amount(link.beta_s_per_byte), "links have finite costs");
    }
  }
}

}  // namespace

void topology_target(Input input) {
  Reader reader(input);
  const std::string text = reader.text();
  const auto topology = topology_from_text(text);
  if (!topology.ok()) {
    require(topology.status().code() == Code::kInvalidArgument, "a refusal is an invalid argument");
    require(topology.status().message().starts_with("line "), "a refusal names the line");
    return;
  }
  const std::string written = to_text(topology.value());
  const auto again = topology_from_text(written);
  require(again.ok(), "what is written can be read: " + again.status().message() + "\n" + written);
  require(again.value() == topology.value(), "a topology comes back the same:\n" + written);
  require(to_text(again.value()) == written, "the text comes back the same:\n" + written);
  if (topology.value().nodes() > kMostNodes) return;
  look_at_links(topology.value());
  for (int nodes = 1; nodes <= topology.value().nodes(); ++nodes) {
    require(topology.value().first(nodes).nodes() == nodes, "the first few nodes are a topology of their own");
  }
  require(topology.value().with_messages_of(0.25).nodes() == topology.value().nodes(),
          "compression keeps the nodes");
}

}  // namespace braid::fuzz

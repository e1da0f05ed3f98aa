// SPDX-License-Identifier: Apache-2.0
// Writes and reads the text form of a topology.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/cursor.h"
#include "topology/topology.h"

namespace braid {
namespace {

constexpr uint64_t kNumberLimit = 1u << 30;

// The shortest digits that read back as the same number, in any locale.
std::string number_text(double value) {
  std::array<char, 32> digits;
  auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), end};
}

std::string link_text(const Link& link) {
  return " alpha_s=" + number_text(link.alpha_s) + " beta_s_per_byte=" + number_text(link.beta_s_per_byte) + "\n";
}

bool parse_link(Cursor& line, Link* link) {
  return line.take("alpha_s=") && line.amount(&link->alpha_s, "seconds") && line.take("beta_s_per_byte=") &&
         line.amount(&link->beta_s_per_byte, "seconds per byte");
}

bool parse_hosts(Cursor& line, std::vector<int>* hosts) {
  if (!line.take("topology") || !line.take("hosts=")) return false;
  do {
    int host = 0;
    if (!line.number(&host, "a host number", kNumberLimit)) return false;
    hosts->push_back(host);
  } while (line.try_take(","));
  return true;
}

bool parse_nic(Cursor& line, Topology::Nic* nic) {
  return line.take("up_s_per_byte=") && line.amount(&nic->up_s_per_byte, "seconds per byte") &&
         line.take("down_s_per_byte=") && line.amount(&nic->down_s_per_byte, "seconds per byte");
}

bool parse_node(Cursor& line, int nodes, int* node) {
  line.at_end();  // skips blanks
  return line.number(node, "a node number", static_cast<uint64_t>(nodes) - 1);
}

// The lines of a topology, in their order.
class Parser {
 public:
  bool parse(Cursor& line) {
    ++lines_;
    if (lines_ == 1) return parse_hosts(line, &hosts_);
    if (lines_ == 2) return line.take("within") && parse_link(line, &within_);
    if (lines_ == 3) {
      if (!line.take("between") || !parse_link(line, &between_)) return false;
      topology_.emplace(hosts_, within_, between_);
      return true;
    }
    if (lines_ == 4 && line.try_take("burst")) return parse_burst_line(line);
    if (!has_nics_ && line.try_take("work")) return parse_work_line(line);
    has_nics_ = true;
    if (!has_links_ && line.try_take("card")) return parse_nic_line(line);
    has_links_ = true;
    return line.take("link") && parse_link_line(line);
  }

  const std::optional<Topology>& topology() const { return topology_; }

 private:
  bool parse_burst_line(Cursor& line) {
    double bytes = 0;
    if (!line.take("bytes=") || !line.amount(&bytes, "bytes")) return false;
    topology_->set_burst_bytes(bytes);
    return true;
  }

  bool parse_work_line(Cursor& line) {
    const std::string name(line.word());
    if (name.empty()) return line.fail("a kind of work");
    line.drop(name);
    double s_per_byte = 0;
    if (!line.take("s_per_byte=") || !line.amount(&s_per_byte, "seconds per byte")) return false;
    topology_->set_work(name, s_per_byte);
    return true;
  }

  bool parse_nic_line(Cursor& line) {
    int host = 0;
    Topology::Nic nic;
    line.at_end();                  // skips blanks
    const Cursor at_number = line;  // the error shows the number
    if (!line.number(&host, "a host number", kNumberLimit)) return false;
    if (std::find(hosts_.begin(), hosts_.end(), host) == hosts_.end()) {
      line = at_number;
      return line.fail("a host that the first line names");
    }
    if (!parse_nic(line, &nic)) return false;
    topology_->set_nic(host, nic);
    return true;
  }

  bool parse_link_line(Cursor& line) {
    int from = 0;
    int to = 0;
    Link link;
    if (!parse_node(line, topology_->nodes(), &from) || !line.take("->")) return false;
    if (!parse_node(line, topology_->nodes(), &to)) return false;
    if (from == to) return line.fail("two different nodes before this");
    if (!parse_link(line, &link)) return false;
    topology_->set_link(from, to, link);
    return true;
  }

  int lines_ = 0;
  bool has_nics_ = false;
  bool has_links_ = false;  // NIC lines must come before link lines: the meaning of a link line depends on NICs
  std::vector<int> hosts_;
  Link within_;
  Link between_;
  std::optional<Topology> topology_;
};

}  // namespace

std::string to_text(const Topology::Nic& nic) {
  return "up_s_per_byte=" + number_text(nic.up_s_per_byte) +
         " down_s_per_byte=" + number_text(nic.down_s_per_byte);
}

Result<Topology::Nic> nic_from_text(std::string_view text) {
  Cursor line(text);
  Topology::Nic nic;
  if (parse_nic(line, &nic) && !line.at_end()) line.fail("the end of the line");
  if (line.failed()) return Status(Code::kInvalidArgument, line.expected());
  return nic;
}

std::string to_text(const Topology& topology) {
  std::string text = "topology";
  for (int node = 0; node < topology.nodes(); ++node) {
    text += (node == 0 ? " hosts=" : ",") + std::to_string(topology.host(node));
  }
  text += "\nwithin" + link_text(topology.within_host());
  text += "between" + link_text(topology.between_hosts());
  if (topology.burst_bytes() > 0) text += "burst bytes=" + number_text(topology.burst_bytes()) + "\n";
  for (const auto& [name, s_per_byte] : topology.work()) {
    text += "work " + name + " s_per_byte=" + number_text(s_per_byte) + "\n";
  }
  for (const auto& [host, nic] : topology.special_nics()) {
    text += "card " + std::to_string(host) + " " + to_text(nic) + "\n";
  }
  for (const auto& [ends, link] : topology.special_links()) {
    text += "link " + std::to_string(ends.first) + " -> " + std::to_string(ends.second) + link_text(link);
  }
  return text;
}

Result<Topology> topology_from_text(std::string_view text) {
  Parser parser;
  size_t number = 0;
  while (!text.empty()) {
    ++number;
    size_t size = text.find('\n');
    Cursor line(text.substr(0, size));
    text.remove_prefix(size == std::string_view::npos ? text.size() : size + 1);
    if (line.at_end()) continue;
    if (parser.parse(line) && !line.at_end()) line.fail("the end of the line");
    if (line.failed()) {
      return Status(Code::kInvalidArgument, "line " + std::to_string(number) + ": " + line.expected());
    }
  }
  if (!parser.topology()) {
    return Status(Code::kInvalidArgument,
                  "line " + std::to_string(number + 1) + ": expected topology, within and between lines");
  }
  return *parser.topology();
}

}  // namespace braid

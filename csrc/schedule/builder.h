// SPDX-License-Identifier: Apache-2.0
// Planners draw schedules with a Builder. Steps are added to the open round of a node; end_round() closes the
// round on all nodes.
#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace braid {

inline Ref input(int first, int count = 1) { return {Buffer::kInput, first, count}; }
inline Ref output(int first, int count = 1) { return {Buffer::kOutput, first, count}; }
inline Ref scratch(int first, int count = 1) { return {Buffer::kScratch, first, count}; }
inline Source local(Ref ref) { return {-1, ref}; }
inline Source message_from(Node node) { return {node, {}}; }

class Builder {
 public:
  Builder(const Collective& collective, std::string algorithm, int chunks, int aggregators = 0);

  void set_shares(std::vector<uint64_t> shares);
  void send(Node node, Ref what, Node to);
  void recv(Node node, Ref into, Node from);
  void reduce(Node node, Ref into, std::vector<Source> sources);
  void copy(Node node, Ref into, Ref from);
  void add(Node node, Step step);
  // Ends the open round on all nodes. A node without a step in the round gets no round.
  void end_round();

  Schedule build() &&;  // ends an open round

 private:
  Schedule schedule_;
  std::vector<Round> open_;
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// All-reduce on two binary trees, each for half of the vector: sums go up, results down. Who is an inner node of
// one is a leaf of the other, so all ranks send and receive about alike.
//
//   5 ranks, chunk 0:      3          chunk 1:      2
//                       1     4                  0     3
//                      0 2                      4 1
//
// A tree numbers its positions 1..n from left to right: odd ones are leaves, others are inner nodes with as many
// levels below them as they have trailing zero bits. The second tree has the ranks mirrored when n is even and
// moved on by one when it is odd, so that no even position is even again. Ranks are counted host by host, which
// keeps most edges inside a host. A parent adds in the order left, own, right. Level k of both trees moves at the
// same time, so every message is sent in the round in which it is taken, and nobody waits for a later one.
// Rounds: 2 floor(log2 n). Sent per rank: at most 2 S. Two chunks.
// Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.
#include <bit>

#include "planner/alone.h"
#include "planner/shapes.h"

namespace braid {
namespace {

// Positions 1..count in a tree; 0 is none.
class Tree {
 public:
  explicit Tree(int count) : count_(count) {}

  static int levels_below(int position) { return std::countr_zero(static_cast<unsigned>(position)); }
  int left(int position) const { return position - lowest_bit(position) / 2; }
  // The largest tree that still lies within the count; none when there is nothing on this side.
  int right(int position) const {
    for (int step = lowest_bit(position) / 2; step > 0; step /= 2) {
      if (position + step <= count_) return position + step;
    }
    return 0;
  }

 private:
  static int lowest_bit(int position) { return position & -position; }

  int count_;
};

class TreePlan {
 public:
  TreePlan(const Collective& collective, const Hosts& hosts)
      : n_(collective.ranks), order_(hosts.in_order()), tree_(n_), builder_(collective, "double_tree", 2) {}

  Schedule draw() && {
    int levels = std::bit_width(static_cast<unsigned>(n_)) - 1;
    for (int level = 1; level <= levels; ++level) {
      for_level(level, [this](int half, int parent) { add_up(half, parent); });
    }
    for (int level = levels; level >= 1; --level) {
      for_level(level, [this](int half, int parent) { hand_down(half, parent); });
    }
    return std::move(builder_).build();
  }

 private:
  Node node(int half, int position) const {
    if (half == 0) return order_[position - 1];
    return order_[n_ % 2 == 0 ? n_ - position : (position + n_ - 2) % n_];
  }

  template <class Visit>
  void for_level(int level, const Visit& visit) {
    for (int half : {0, 1}) {
      for (int parent = 1 << level; parent <= n_; parent += 2 << level) visit(half, parent);
    }
    builder_.end_round();
  }

  // What a node holds before it hands it up.
  Ref sum(int half, int position) const { return Tree::levels_below(position) == 0 ? input(half) : output(half); }

  void add_up(int half, int parent) {
    std::vector<Source> sources;
    for (int from : {tree_.left(parent), parent, tree_.right(parent)}) {
      if (from == 0) continue;
      if (from != parent) builder_.send(node(half, from), sum(half, from), node(half, parent));
      sources.push_back(from == parent ? local(input(half)) : message_from(node(half, from)));
    }
    builder_.reduce(node(half, parent), output(half), std::move(sources));
  }

  void hand_down(int half, int parent) {
    for (int to : {tree_.left(parent), tree_.right(parent)}) {
      if (to == 0) continue;
      builder_.send(node(half, parent), output(half), node(half, to));
      builder_.recv(node(half, to), output(half), node(half, parent));
    }
  }

  int n_;
  std::vector<Node> order_;
  Tree tree_;
  Builder builder_;
};

}  // namespace

Schedule plan_double_tree(const Collective& collective, const Hosts& hosts) {
  if (collective.ranks == 1) return plan_alone(collective, "double_tree");
  return TreePlan(collective, hosts).draw();
}

}  // namespace braid

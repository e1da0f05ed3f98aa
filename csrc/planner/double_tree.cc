// SPDX-License-Identifier: Apache-2.0
// All-reduce on two binary trees, each for half of the vector: sums go up, results go down. An inner node of one
// tree is a leaf of the other, so all ranks send and receive about equally much.
//
//   5 ranks, chunk 0:      3          chunk 1:      2
//                       1     4                  0     3
//                      0 2                      4 1
//
// The positions of a tree are 1..n from left to right. Odd positions are leaves. Even positions are inner nodes;
// the number of trailing zero bits is the number of levels below. In the second tree the ranks are mirrored if n
// is even, and moved on by one if n is odd. So a rank at an even position of one tree has an odd position in the
// other. Ranks are placed host by host, so most edges stay inside a host. A parent adds in the order left, own,
// right. Level k of both trees moves in the same round. So every message is sent and received in the same round,
// and no node waits for a message of a later round.
// Rounds: 2 floor(log2 n). Sent per rank: at most 2 S. Two chunks.
// Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.
#include <bit>

#include "planner/alone.h"
#include "planner/shapes.h"

namespace braid {
namespace {

// Positions 1..count in a tree; 0 means no position.
class Tree {
 public:
  explicit Tree(int count) : count_(count) {}

  static int levels_below(int position) { return std::countr_zero(static_cast<unsigned>(position)); }
  int left(int position) const { return position - lowest_bit(position) / 2; }
  // The right child: the root of the largest subtree whose root is within the count; 0 if there is no right child.
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

  // The ref that a node sends to its parent.
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

// SPDX-License-Identifier: Apache-2.0
// Reduces any number of ranks to a power of two. Among the first 2 * extra ranks, each even rank sends its vector
// to its odd neighbour, sits out, and gets the result back at the end (Thakur, Rabenseifner, Gropp 2005).
//
//   5 ranks:  0 -> 1   2   3   4        active: 1 2 3 4, known as 0 1 2 3
#pragma once

#include "schedule/builder.h"

namespace braid {

class Fold {
 public:
  explicit Fold(int ranks);

  int active() const { return active_; }  // the largest power of two in `ranks`
  Node node(int position) const { return position < extra_ ? 2 * position + 1 : position + extra_; }
  // The ref with the data of the active node at `position` after fold_in(): its output if it added a neighbour's
  // vector, otherwise its input.
  Ref held(int position, int first, int count) const {
    return position < extra_ ? output(first, count) : input(first, count);
  }

  void fold_in(Builder& builder, int chunks) const;   // one round; none for a power of two
  void fold_out(Builder& builder, int chunks) const;  // one round; none for a power of two

 private:
  int active_ = 1;
  int extra_ = 0;
};

}  // namespace braid

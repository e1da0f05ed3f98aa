// SPDX-License-Identifier: Apache-2.0
#include "planner/fold.h"

namespace braid {

Fold::Fold(int ranks) {
  while (active_ * 2 <= ranks) active_ *= 2;
  extra_ = ranks - active_;
}

void Fold::fold_in(Builder& builder, int chunks) const {
  for (Node even = 0; even < 2 * extra_; even += 2) {
    builder.send(even, input(0, chunks), even + 1);
    builder.reduce(even + 1, output(0, chunks), {message_from(even), local(input(0, chunks))});
  }
  builder.end_round();
}

void Fold::fold_out(Builder& builder, int chunks) const {
  for (Node even = 0; even < 2 * extra_; even += 2) {
    builder.send(even + 1, output(0, chunks), even);
    builder.recv(even, output(0, chunks), even + 1);
  }
  builder.end_round();
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// All-reduce as a reduce-scatter by recursive halving and an all-gather by recursive doubling.
//
//   halving,  round 0:  0 <-> 2   1 <-> 3   swap halves: 0, 1 keep chunks 0-1 and 2, 3 keep chunks 2-3
//             round 1:  0 <-> 1   2 <-> 3   swap quarters: rank r is left with the sum of chunk r
//   doubling: the same pairs in reverse hand the sums back
//
// A number of ranks that is no power of two is folded first (see fold.h).
// Rounds: 2 log2 n. Sent per rank: 2(n-1)/n S. Folded: two rounds and up to S more. One chunk per active rank.
// Rabenseifner, "Optimization of collective reduction operations", 2004.
#include "planner/alone.h"
#include "planner/fold.h"
#include "planner/shapes.h"

namespace braid {

Schedule plan_halving_doubling(const Collective& collective) {
  if (collective.ranks == 1) return plan_alone(collective, "halving_doubling");
  Fold fold(collective.ranks);
  int chunks = fold.active();
  Builder builder(collective, "halving_doubling", chunks);
  fold.fold_in(builder, chunks);

  for (int half = chunks / 2; half >= 1; half /= 2) {
    for (int position = 0; position < chunks; ++position) {
      Node node = fold.node(position);
      Node partner = fold.node(position ^ half);
      int kept = position / half * half;  // the run of `half` chunks that `position` lies in
      int given = kept ^ half;
      bool first = half == chunks / 2;
      auto held = [&](int run) { return first ? fold.held(position, run, half) : output(run, half); };
      builder.send(node, held(given), partner);
      builder.reduce(node, output(kept, half), {local(held(kept)), message_from(partner)});
    }
    builder.end_round();
  }
  for (int run = 1; run < chunks; run *= 2) {
    for (int position = 0; position < chunks; ++position) {
      Node node = fold.node(position);
      Node partner = fold.node(position ^ run);
      int own = position / run * run;
      builder.send(node, output(own, run), partner);
      builder.recv(node, output(own ^ run, run), partner);
    }
    builder.end_round();
  }
  fold.fold_out(builder, chunks);
  return std::move(builder).build();
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "planner/between.h"

#include <algorithm>
#include <utility>

namespace braid {

size_t most_rounds(const Schedule& schedule) {
  size_t most = 0;
  for (const Program& program : schedule.programs) most = std::max(most, program.size());
  return most;
}

void add_round(Builder& builder, const Between& between, int host, size_t round, Buffer inputs) {
  const Program& program = between.schedule.programs[host];
  if (round >= program.size()) return;
  auto moved = [&](Ref ref) {
    if (ref.buffer == Buffer::kInput) ref.buffer = inputs;
    ref.first += between.first_chunk;
    return ref;
  };
  for (Step step : program[round]) {
    step.target = moved(step.target);
    if (step.peer >= 0) step.peer = between.carriers[step.peer];
    for (Source& source : step.sources) {
      source = source.is_remote() ? message_from(between.carriers[source.from]) : local(moved(source.ref));
    }
    if (step.op == Op::kCopy && step.sources[0].ref == step.target) continue;
    builder.add(between.carriers[host], std::move(step));
  }
}

}  // namespace braid

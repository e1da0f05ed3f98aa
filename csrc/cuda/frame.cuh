// SPDX-License-Identifier: Apache-2.0
// What of a message is neither scales nor data.
#pragma once

#include "cuda/tiles.cuh"

namespace braid::cuda {

// Writes header and padding. By one warp of the grid.
BRAID_DEVICE void write_frame(const Job& job) {
  if (warp_of() != 0) return;
  const MessagePlan& plan = job.plan;
  const uint32_t lane = lane_of();
  if (lane < 4) reinterpret_cast<uint32_t*>(job.message)[lane] = plan.header[lane];
  const uint64_t ends[3] = {plan.scales_at + plan.scale_count * 4, plan.positions_at + job.entries * 4ull,
                            plan.data_at + plan.data_bytes};
  const bool has[3] = {plan.scale_count > 0, plan.positions_at > 0, true};
  BRAID_UNROLL
  for (int p = 0; p < 3; ++p) {
    if (has[p] && lane < (16 - ends[p] % 16) % 16) job.message[ends[p] + lane] = 0;
  }
}

// Whether the message begins as it should.
BRAID_DEVICE bool has_header(const Job& job, bool any_seed) {
  const auto* header = reinterpret_cast<const uint32_t*>(job.message);
  bool right = true;
  for (int w = 0; w < 3; ++w) right = right && header[w] == job.plan.header[w];
  return right && (any_seed || header[3] == job.plan.header[3]);
}

}  // namespace braid::cuda

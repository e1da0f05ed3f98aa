// SPDX-License-Identifier: Apache-2.0
// Top-k: exactly the elements of the largest magnitude bits, the first of equal ones, in the order of their
// positions.
//
//   gather   left = tensors * scale + floats; counts magnitudes by their upper 11 bits; the last block to finish
//   finds the bin that the k-th largest is in refine   twice, 10 bits more each: counts among the magnitudes that
//   begin with the bits found count    a warp per chunk of elements: how many above and at the threshold; the last
//   block adds them up write    a warp per chunk: positions and values, in order; what is sent leaves `left`
#pragma once

#include "cuda/dense.cuh"

namespace braid::cuda {

// Bin 0 is not counted: what is in no other is in it. Gradients have many zeros, and counting equal ones is slow.
struct Counter {
  uint32_t* bins;
  BRAID_DEVICE void count(uint32_t bin) const {
    if (bin != 0) atomicAdd(&bins[bin], 1u);
  }
};

// Whether this is the last block to come here, and so sees what the others wrote before.
BRAID_DEVICE bool is_last_block(TopKState& state) {
  __shared__ uint32_t ticket;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) ticket = atomicAdd(&state.finished, 1u);
  __syncthreads();
  const bool last = ticket == gridDim.x - 1;
  if (last && threadIdx.x == 0) state.finished = 0;
  __threadfence();
  return last;
}

// The sum of what the threads before this one have. For all threads of a block.
BRAID_DEVICE uint32_t sum_before(uint32_t mine) {
  __shared__ uint32_t of_warp[kWarps];
  const uint32_t lane = lane_of(), warp = threadIdx.x / kWarp;
  uint32_t sum = mine;
  BRAID_UNROLL
  for (uint32_t step = 1; step < kWarp; step *= 2) {
    const uint32_t other = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += other;
  }
  __syncthreads();  // of_warp may still be read from the last time
  if (lane == kWarp - 1) of_warp[warp] = sum;
  __syncthreads();
  uint32_t before = sum - mine;
  BRAID_UNROLL
  for (uint32_t w = 0; w < kWarps; ++w) {
    if (w < warp) before += of_warp[w];
  }
  return before;
}

// By the last block: finds the bin of the one that is `wanted` from the top, and clears the bins.
BRAID_DEVICE void decide(const Job& job) {
  TopKState& state = *job.state;
  constexpr uint32_t kEach = kBins / kThreads;
  const bool begins = job.shift == 20;
  const uint32_t wanted = begins ? job.entries : state.at_threshold;
  const uint32_t top = kBins - 1 - threadIdx.x * kEach;  // the highest bin of this thread
  uint32_t counts[kEach], mine = 0;
  BRAID_UNROLL
  for (uint32_t b = 0; b < kEach; ++b) {
    counts[b] = __ldcg(&state.bins[top - b]);
    mine += counts[b];
    state.bins[top - b] = 0;
  }
  uint32_t above = sum_before(mine);
  const uint32_t bits = begins ? 0 : state.threshold;
  __syncthreads();
  if (above < wanted && (above + mine >= wanted || threadIdx.x == kThreads - 1)) {
    BRAID_UNROLL
    for (uint32_t b = 0; b < kEach; ++b) {
      if (above < wanted && (above + counts[b] >= wanted || top == b)) {
        state.threshold = bits | (top - b) << job.shift;
        state.at_threshold = wanted - above;
        above = wanted;  // found
      } else {
        above += counts[b];
      }
    }
  }
}

// Adds the block's bins to all blocks', and lets the last one decide.
BRAID_DEVICE void conclude(const Job& job, uint32_t* bins) {
  __syncthreads();
  for (uint32_t b = threadIdx.x; b < kBins; b += kThreads) {
    if (bins[b] != 0) atomicAdd(&job.state->bins[b], bins[b]);
  }
  if (is_last_block(*job.state) && job.entries != 0) decide(job);
}

BRAID_DEVICE void top_k_gather(const Job& job) {
  __shared__ uint32_t bins[kBins];
  for (uint32_t b = threadIdx.x; b < kBins; b += kThreads) bins[b] = 0;
  __syncthreads();
  write_frame(job);
  const uint32_t lane = lane_of();
  for (uint64_t first = warp_of() * Quads::kElements; first < job.elements;
       first += all_warps() * Quads::kElements) {
    Quads tile;
    load_scaled(job, first, lane, tile);
    BRAID_UNROLL
    for (int s = 0; s < Quads::kSlots; ++s) {
      tile.at[s] = sent_of(tile.at[s]);
      Counter{bins}.count(magnitude_bits(tile.at[s]) >> 20);  // places past the end are zeros
    }
    store_floats(job.left, first, job.elements, lane, tile);
  }
  conclude(job, bins);
}

BRAID_DEVICE void top_k_refine(const Job& job) {
  __shared__ uint32_t bins[kBins];
  for (uint32_t b = threadIdx.x; b < kBins; b += kThreads) bins[b] = 0;
  __syncthreads();
  const uint32_t lane = lane_of(), shift = job.shift, begun = job.state->threshold >> (shift + 10);
  for (uint64_t first = warp_of() * Quads::kElements; first < job.elements;
       first += all_warps() * Quads::kElements) {
    Quads tile;
    load_floats(job.left, first, job.elements, lane, tile);
    BRAID_UNROLL
    for (int s = 0; s < Quads::kSlots; ++s) {
      const uint32_t bits = magnitude_bits(tile.at[s]) >> shift;
      if (bits >> 10 == begun) Counter{bins}.count(bits & 1023);
    }
  }
  conclude(job, bins);
}

BRAID_DEVICE uint64_t chunks_of(const Job& job) { return (job.elements + job.chunk - 1) / job.chunk; }
BRAID_DEVICE uint64_t end_of_chunk(const Job& job, uint64_t chunk) {
  const uint64_t end = (chunk + 1) * job.chunk;
  return end < job.elements ? end : job.elements;
}

BRAID_DEVICE void top_k_count(const Job& job) {
  TopKState& state = *job.state;
  const uint32_t lane = lane_of(), threshold = state.threshold;
  for (uint64_t chunk = warp_of(); chunk < chunks_of(job); chunk += all_warps()) {
    const uint64_t end = end_of_chunk(job, chunk);
    uint32_t above = 0, equal = 0;
    for (uint64_t first = chunk * job.chunk; first < end; first += Quads::kElements) {
      Quads tile;
      load_floats(job.left, first, job.elements, lane, tile);
      BRAID_UNROLL
      for (int s = 0; s < Quads::kSlots; ++s) {
        const uint32_t bits = magnitude_bits(tile.at[s]);
        above += bits > threshold ? 1 : 0;
        equal += bits == threshold && first + Quads::place(s, lane) < end ? 1 : 0;
      }
    }
    BRAID_UNROLL
    for (int step = kWarp / 2; step > 0; step /= 2) {
      above += __shfl_xor_sync(~0u, above, step);
      equal += __shfl_xor_sync(~0u, equal, step);
    }
    if (lane == 0) {
      state.above[chunk] = above;
      state.equal[chunk] = equal;
    }
  }
  if (!is_last_block(state)) return;
  const uint32_t chunks = static_cast<uint32_t>(chunks_of(job));
  const uint32_t each = (chunks + kThreads - 1) / kThreads;
  const uint32_t begin = threadIdx.x * each, end = begin + each < chunks ? begin + each : chunks;
  uint32_t above = 0, equal = 0;
  for (uint32_t c = begin; c < end; ++c) {
    above += __ldcg(&state.above[c]);
    equal += __ldcg(&state.equal[c]);
  }
  above = sum_before(above);
  equal = sum_before(equal);
  for (uint32_t c = begin; c < end; ++c) {
    const uint32_t of_this[2] = {__ldcg(&state.above[c]), __ldcg(&state.equal[c])};
    state.above[c] = above;
    state.equal[c] = equal;
    above += of_this[0];
    equal += of_this[1];
  }
}

BRAID_DEVICE void top_k_write(const Job& job) {
  const TopKState& state = *job.state;
  const uint32_t lane = lane_of(), threshold = state.threshold, most_equal = state.at_threshold;
  const uint32_t lower = (1u << lane) - 1;
  auto* positions = reinterpret_cast<uint32_t*>(job.message + job.plan.positions_at);
  auto* values = reinterpret_cast<float*>(job.message + job.plan.data_at);
  for (uint64_t chunk = warp_of(); chunk < chunks_of(job); chunk += all_warps()) {
    const uint64_t end = end_of_chunk(job, chunk);
    uint32_t above = state.above[chunk], equal = state.equal[chunk];
    for (uint64_t first = chunk * job.chunk; first < end; first += Columns::kElements) {
      Columns tile;
      load_floats(job.left, first, job.elements, lane, tile);
      uint32_t special = 0;  // bit `row`: this lane's element of that row may be sent, or is not left as it is
      BRAID_UNROLL
      for (int row = 0; row < Columns::kSlots; ++row) {
        const bool inside = first + Columns::place(row, lane) < end;
        const float value = tile.at[row];
        if (inside && (magnitude_bits(value) >= threshold || !is_finite(value))) special |= 1u << row;
      }
      if (__ballot_sync(~0u, special != 0) == 0) continue;
      BRAID_UNROLL
      for (int row = 0; row < Columns::kSlots; ++row) {
        const float value = tile.at[row];
        const bool is_special = (special >> row & 1) != 0;
        const bool is_above = is_special && magnitude_bits(value) > threshold;
        const bool is_equal = is_special && magnitude_bits(value) == threshold;
        const uint32_t aboves = __ballot_sync(~0u, is_above);
        const uint32_t equals = __ballot_sync(~0u, is_equal);
        const uint32_t equal_here = equal + __popc(equals & lower);
        const uint64_t position = first + Columns::place(row, lane);
        if (is_above || (is_equal && equal_here < most_equal)) {
          const uint32_t at = above + __popc(aboves & lower) + (equal_here < most_equal ? equal_here : most_equal);
          positions[at] = static_cast<uint32_t>(position);
          values[at] = value;
          job.left[position] = 0;
        } else if (is_special) {
          job.left[position] = left_unsent(value);
        }
        above += __popc(aboves);
        equal += __popc(equals);
      }
    }
  }
}

}  // namespace braid::cuda

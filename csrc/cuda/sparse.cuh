// SPDX-License-Identifier: Apache-2.0
// random-k, and what both sparse codecs do when decoding.
#pragma once

#include "cuda/dense.cuh"

namespace braid::cuda {

BRAID_DEVICE uint64_t chosen_position(const Job& job, uint32_t seed, uint64_t stretch) {
  const uint64_t begin = stretch * job.every, rest = job.elements - begin;
  const uint32_t length = rest < job.every ? static_cast<uint32_t>(rest) : job.every;
  return begin + chosen_of(seed, static_cast<uint32_t>(stretch), length);
}

BRAID_DEVICE void send_chosen(const Job& job) {
  write_frame(job);
  auto* values = reinterpret_cast<float*>(job.message + job.plan.data_at);
  for (uint64_t i = thread_of(); i < job.entries; i += all_threads()) {
    const uint64_t position = chosen_position(job, job.seed, i);
    float value = load_one(*row_at(job, position), position) * job.scale;
    if (job.floats != nullptr) value += job.floats[position];
    values[i] = sent_of(value);
  }
}

BRAID_RARE void show_unsent(const Job& job, uint64_t position) {
  const uint64_t stretch = position / job.every;
  if (chosen_position(job, job.seed, stretch) == position) return;
  reinterpret_cast<float*>(job.message + job.plan.data_at)[stretch] = float_of(kNanBits);
}

// After send_chosen: left = tensors * scale + floats, and what is not finite shows, though it was not chosen.
BRAID_DEVICE void keep(const Job& job) {
  const uint32_t lane = lane_of();
  for (uint64_t first = warp_of() * Quads::kElements; first < job.elements;
       first += all_warps() * Quads::kElements) {
    Quads tile;
    load_scaled(job, first, lane, tile);  // zeros past the end
    BRAID_UNROLL
    for (int s = 0; s < Quads::kSlots; ++s) {
      if (!is_finite(tile.at[s])) show_unsent(job, first + Quads::place(s, lane));
      tile.at[s] = left_unsent(tile.at[s]);
    }
    if (job.left != nullptr) store_floats(job.left, first, job.elements, lane, tile);
  }
}

// What was sent is not left.
BRAID_DEVICE void drop_chosen(const Job& job) {
  for (uint64_t i = thread_of(); i < job.entries; i += all_threads()) {
    job.left[chosen_position(job, job.seed, i)] = 0;
  }
}

// Raises the flag, which is 0, where the message is another's or its positions are out of order or range.
BRAID_DEVICE void check_message(const Job& job) {
  const bool has_positions = job.plan.positions_at != 0;
  bool right = has_header(job, !has_positions);
  if (has_positions) {
    const auto* positions = reinterpret_cast<const uint32_t*>(job.message + job.plan.positions_at);
    for (uint64_t i = thread_of(); i < job.entries; i += all_threads()) {
      right = right && positions[i] < job.elements && (i == 0 || positions[i - 1] < positions[i]);
    }
  }
  if (!right) *job.flag = 1;
}

// After check_message: zeros everywhere.
BRAID_DEVICE void clear(const Job& job) {
  if (*job.flag != 0) return;
  const uint32_t lane = lane_of();
  for (uint64_t first = warp_of() * Quads::kElements; first < job.elements;
       first += all_warps() * Quads::kElements) {
    Quads tile = {};
    put_scaled(job, first, lane, tile);  // as the host does, which makes -0 of it, or no number
  }
}

// After check_message: the values to their places.
BRAID_DEVICE void scatter(const Job& job) {
  if (*job.flag != 0) return;
  const auto* positions = reinterpret_cast<const uint32_t*>(job.message + job.plan.positions_at);
  const auto* values = reinterpret_cast<const float*>(job.message + job.plan.data_at);
  const uint32_t seed = reinterpret_cast<const uint32_t*>(job.message)[3];
  for (uint64_t i = thread_of(); i < job.entries; i += all_threads()) {
    const uint64_t position = job.plan.positions_at != 0 ? positions[i] : chosen_position(job, seed, i);
    // The host adds each value to what is there, or to a zero: then -0 becomes 0.
    const float value = job.add != 0 ? values[i] : 0.0f + values[i];
    put_one(job, *row_at(job, position), position, value * job.scale);
  }
}

}  // namespace braid::cuda

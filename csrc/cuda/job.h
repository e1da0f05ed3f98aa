// SPDX-License-Identifier: Apache-2.0
// What a kernel is told: one struct for all of them, passed by value, the same on host and device. Addresses are the
// device's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace braid::cuda {

constexpr uint32_t kWarp = 32;
constexpr uint32_t kThreads = 256;  // of every block
constexpr uint32_t kWarps = kThreads / kWarp;

// What a kernel reads and writes besides floats of its own.
enum class Element : uint32_t { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2 };

// A run of elements of one tensor, in a table of them. `begin` is its first element's place among those of the whole
// table; the next row begins where it ends. The last row is followed by one that only has a `begin`. No run is empty.
struct Row {
  uint64_t address = 0;
  uint64_t begin = 0;
  Element element = Element::kFloat32;
  uint32_t unused = 0;
};

// Tables of so many rows travel with the job; longer ones lie in the device's memory.
constexpr uint32_t kInlineRows = 128;

// As braid::MessageLayout.
struct MessagePlan {
  uint32_t header[4] = {};
  uint64_t scales_at = 0;
  uint64_t scale_count = 0;
  uint64_t positions_at = 0;
  uint64_t data_at = 0;
  uint64_t data_bytes = 0;
  uint64_t bytes = 0;
};

// Of top-k: how the k-th magnitude is found. The 31 bits of a magnitude are decided 11, 10 and 10 at a time.
constexpr uint32_t kBins = 2048;
constexpr uint32_t kMostChunks = 16384;
struct TopKState {
  uint32_t bins[kBins];   // magnitudes by the bits that are being decided; 0 between kernels
  uint32_t finished;      // blocks; 0 between kernels
  uint32_t threshold;     // the bits decided so far, in their place
  uint32_t at_threshold;  // of the elements of magnitude `threshold`, so many are sent, the first
  uint32_t unused;
  // Of each chunk: elements above and at the threshold, then those before it.
  uint32_t above[kMostChunks];
  uint32_t equal[kMostChunks];
};

struct Job {
  uint64_t elements = 0;
  float scale = 1;
  uint32_t seed = 0;
  uint32_t every = 0;
  uint32_t entries = 0;
  uint32_t add = 0;                  // to what the tensors hold, instead of storing
  uint32_t shift = 0;                // top-k: the bits being decided begin here
  uint64_t chunk = 0;                // top-k: elements of one
  unsigned char* message = nullptr;  // at a multiple of 16
  const float* floats = nullptr;     // elements that are added to the tensors', or read; may be null
  float* left = nullptr;             // what is written beside the message; may be null or `floats`
  TopKState* state = nullptr;
  uint32_t* flag = nullptr;  // decoding: gets 1 where the message is another's, else 0
  MessagePlan plan;
  uint32_t row_count = 0;
  uint32_t unused = 0;
  const Row* far_rows = nullptr;  // where there are more than kInlineRows
  Row rows[kInlineRows + 1];
};
static_assert(sizeof(Row) == 24 && sizeof(Job) <= 4096, "a kernel's parameters end at 4 KiB");

}  // namespace braid::cuda

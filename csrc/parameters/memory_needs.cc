// SPDX-License-Identifier: Apache-2.0
#include "parameters/memory_needs.h"

#include "parameters/call.h"

namespace braid {
namespace {

constexpr size_t kLine = 16;         // numbers in a cache line
constexpr uint64_t kHeader = 16384;  // of a mapped shard, at most

uint64_t whole_bytes(const ServerOptions& options, size_t count) {
  return whole_floats(options, count) * sizeof(float);
}

// For one worker: the values that it read last (DC-ASGD), and those that it has got through a codec.
uint64_t worker_bytes(const ServerOptions& options, size_t count) {
  const uint64_t vector = count * sizeof(float);
  uint64_t bytes = options.rule.compensates ? vector : 0;
  if (options.coding.pull) {
    const bool has_scratch = options.mode == Mode::kSync;  // answers come from the shard itself
    bytes += vector + body_bytes(options.coding.pull, count) + (has_scratch ? vector : 0);
  }
  return bytes;
}

uint64_t shard_bytes(const ServerOptions& options, size_t count, size_t workers) {
  const uint64_t vector = count * sizeof(float);
  const auto state = static_cast<uint64_t>(state_vectors(options.rule));
  const uint64_t vectors = 1 + state + (options.has_rounds() ? 1 : 0);
  return vectors * vector + (options.is_relaxed() ? kHeader : 0) + workers * worker_bytes(options, count);
}

}  // namespace

size_t message_at(size_t most_count) { return (most_count + kLine - 1) / kLine * kLine; }

size_t buffer_floats(const ServerOptions& options, size_t most_count) {
  if (!options.coding.push) return most_count;
  const size_t bytes = body_bytes(options.coding.push, most_count);
  return message_at(most_count) + (bytes + sizeof(float) - 1) / sizeof(float);
}

size_t whole_floats(const ServerOptions& options, size_t most_count) {
  Call call;
  call.hand_over = HandOver::kYes;
  call.count = most_count;
  return snapshot_floats(call, state_vectors(options.rule));
}

uint64_t bytes_needed(const ServerOptions& options, size_t most_count, std::span<const Holding> holdings,
                      size_t workers) {
  uint64_t bytes = static_cast<uint64_t>(options.buffers) * buffer_floats(options, most_count) * sizeof(float);
  bytes += (kWholeBuffers + kRestoreBuffers) * whole_bytes(options, most_count);
  // A copy on its way to another server, and a shard that is made of a copy here, which goes when that is done.
  if (options.replicas > 0) bytes += 2 * whole_bytes(options, most_count);
  for (const Holding& holding : holdings) {
    if (holding.has_shard) bytes += shard_bytes(options, holding.count, workers);
    if (holding.has_copy) bytes += whole_bytes(options, holding.count);
  }
  return bytes;
}

}  // namespace braid

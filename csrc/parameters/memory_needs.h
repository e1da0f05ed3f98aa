// SPDX-License-Identifier: Apache-2.0
// How much memory a parameter server needs, at most. All functions are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "parameters/server_options.h"

namespace braid {

// Bodies of whole shards, with the rule's state, that a server holds at a time: one that comes, and one that goes.
// A restore that is no hand-over may have to wait for one, so it has its own.
inline constexpr int kWholeBuffers = 2;
inline constexpr int kRestoreBuffers = 1;

// Numbers in a buffer for an update of the largest shard. An encoded update lies behind the numbers that it becomes.
size_t message_at(size_t most_count);
size_t buffer_floats(const ServerOptions& options, size_t most_count);
// The same for a whole shard in a hand-over.
size_t whole_floats(const ServerOptions& options, size_t most_count);

// A shard that a server has, or has promised to take, or a copy of which it keeps.
struct Holding {
  size_t count = 0;
  bool has_shard = false;
  bool has_copy = false;  // of another server's
};
// Bytes for these, and for calls of so many workers. `most_count`: numbers of the largest shard of all servers.
uint64_t bytes_needed(const ServerOptions& options, size_t most_count, std::span<const Holding> holdings,
                      size_t workers);

}  // namespace braid

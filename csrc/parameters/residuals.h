// SPDX-License-Identifier: Apache-2.0
// Error feedback of a worker's pushes (Seide et al. 2014; Karimireddy et al. 2019): what its messages have lacked so
// far, by shard. What the servers have applied, plus the residuals, is the sum of the worker's updates.
//
// A residual belongs to the shard, not to the server: if the shard moves, the residual goes along.
//
// Thread safety: all functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "base/span.h"
#include "parameters/coding.h"
#include "parameters/shard.h"

namespace braid {

class Residuals {
 public:
  // `counts`: numbers of each shard. Without a codec all pushes are exact, and nothing is kept.
  Residuals(std::optional<Codec> codec, const std::vector<size_t>& counts, int worker);

  const std::optional<Codec>& codec() const { return codec_; }

  // Encodes update * scale + residual, and keeps what the message lacks. REQUIRES: codec(); out.size() ==
  // body_bytes(codec(), count).
  void encode(size_t shard, const float* update, float scale, Bytes out);
  // The message was lost: its content belongs to the residual again. Numbers that are not finite are dropped.
  void give_back(size_t shard, ConstBytes message);
  // The same for an update that was never sent.
  void give_back(size_t shard, const float* update, float scale);
  // For a push that needs no message: update * scale + residual, and nothing is kept. Null if there is no residual.
  Floats take(size_t shard, const float* update, float scale);

  std::vector<float> values(size_t shard) const;
  size_t bytes() const;  // of memory

 private:
  struct Kept {
    size_t count = 0;
    Floats lacking;  // null: nothing is lacking
    uint32_t messages = 0;
  };
  float* lacking(Kept& kept);

  const std::optional<Codec> codec_;
  const uint32_t worker_;
  mutable std::mutex mutex_;
  std::deque<Kept> shards_;
};

}  // namespace braid

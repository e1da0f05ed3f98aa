// SPDX-License-Identifier: Apache-2.0
// Values that a server sends to one worker through a codec. Both ends keep the vector that the worker has. The server
// sends the difference to the present values, and both ends add the decoded difference. So what one message lacks is in
// the next one, and errors do not add up. It does not matter how many versions the worker has left out.
//
// Answers for one shard come in order, or the pair ends. So both ends have the same bits, and a new pair begins with the
// values themselves.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/span.h"
#include "base/status.h"
#include "parameters/coding.h"
#include "parameters/shard.h"

namespace braid {

// The server's end, for one worker.
class CodedValues {
 public:
  CodedValues(std::optional<Codec> codec, int worker) : codec_(codec), worker_(static_cast<uint32_t>(worker)) {}

  struct Message {
    ConstBytes bytes;
    std::optional<Codec> codec;  // nothing: the values themselves
  };
  // What brings the values to the worker; valid until the next call. Without a codec it is the values themselves. So it
  // is if the worker has none yet, or if the difference is not finite. Another `beginning` than before says that the
  // shard's values began anew: then it is the values, too. `scratch` has `count` numbers, and may be the memory of the
  // values. Null: memory of its own.
  Message make(uint16_t shard, const float* values, size_t count, uint64_t beginning, float* scratch);

  size_t bytes() const;  // of memory

 private:
  struct Held {
    size_t count = 0;
    Floats values;  // that the worker has; null: none
    uint64_t beginning = 0;
    uint32_t messages = 0;
  };

  const std::optional<Codec> codec_;
  const uint32_t worker_;
  std::map<uint16_t, Held> held_;
  std::vector<float> scratch_;
  std::vector<std::byte> message_;
};

// The worker's end, for one server.
class ReceivedValues {
 public:
  // The values themselves have come.
  void take(uint16_t shard, const float* values, size_t count);
  // A difference has come; `out` gets the values. After an error nothing has changed. kMismatch if there is nothing to
  // add it to, or if it does not decode.
  Status add(uint16_t shard, const Codec& codec, ConstBytes message, float* out, size_t count);

  size_t bytes() const;  // of memory

 private:
  std::map<uint16_t, std::vector<float>> held_;
};

}  // namespace braid

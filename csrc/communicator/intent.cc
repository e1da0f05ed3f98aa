// SPDX-License-Identifier: Apache-2.0
#include "communicator/intent.h"

#include <algorithm>
#include <cstring>

#include "communicator/checks.h"
#include "communicator/group.h"

namespace braid {

Intent intent_for(const Operation& operation, const Route& route) {
  Intent intent;
  intent.kind = static_cast<uint8_t>(operation.kind);
  intent.dtype = static_cast<uint8_t>(operation.dtype);
  intent.op = is_reduction(operation.kind) ? static_cast<uint8_t>(operation.op) : uint8_t{0};
  intent.family =
      static_cast<uint8_t>(route.schedule->digest() ^ route.schedule->digest() >> 32 ^ route.chunk_bytes >> 12);
  if (has_root(operation.kind)) intent.root = static_cast<uint32_t>(operation.root);
  intent.codec = codec_number(operation.lossy);
  intent.bytes = std::min(static_cast<uint64_t>(agreed_bytes(operation)), kMostIntentBytes);
  return intent;
}

uint64_t digest_of(uint64_t sequence, const Intent& intent) {
  uint64_t words[2];
  std::memcpy(words, &intent, sizeof words);
  uint64_t digest = sequence;
  for (const uint64_t word : words) {
    digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
    digest ^= digest >> 29;
  }
  return digest;
}

size_t memory_bytes(const Operation& operation) {
  size_t in = 0, out = 0;
  for (const ConstBytes& block : operation.inputs) in += block.size();
  for (const Bytes& block : operation.outputs) out += block.size();
  return std::max({in, out, operation.bytes});
}

}  // namespace braid

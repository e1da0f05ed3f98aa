// SPDX-License-Identifier: Apache-2.0
#include "group/signature.h"

#include <algorithm>
#include <cstring>

#include "communicator/checks.h"
#include "group/route.h"

namespace braid {

namespace {

// Mixes a word into a digest. The high bits of the result are mixed best.
uint64_t mixed(uint64_t digest, uint64_t word) {
  digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
  return digest ^ digest >> 29;
}

}  // namespace

Signature signature_for(const Operation& operation, const Route& route) {
  Signature signature;
  signature.kind = static_cast<uint8_t>(operation.kind);
  signature.dtype = static_cast<uint8_t>(operation.dtype);
  signature.op = is_reduction(operation.kind) ? static_cast<uint8_t>(operation.op) : uint8_t{0};
  if (has_root(operation.kind)) signature.root = static_cast<uint32_t>(operation.root);
  signature.codec = codec_number(operation.lossy);
  const auto bytes = static_cast<uint64_t>(agreed_bytes(operation));
  signature.bytes = std::min(bytes, kMostSignatureBytes);
  signature.plan_digest = mixed(mixed(route.schedule->digest(), route.chunk_bytes), bytes) >> (64 - kPlanBits);
  return signature;
}

uint64_t digest_of(uint64_t sequence, const Signature& signature) {
  uint64_t words[2];
  std::memcpy(words, &signature, sizeof words);
  uint64_t digest = sequence;
  for (const uint64_t word : words) digest = mixed(digest, word);
  return digest;
}

size_t memory_bytes(const Operation& operation) {
  size_t in = 0, out = 0;
  for (const ConstBytes& block : operation.inputs) in += block.size();
  for (const Bytes& block : operation.outputs) out += block.size();
  return std::max({in, out, operation.bytes});
}

}  // namespace braid

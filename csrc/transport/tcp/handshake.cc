// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/handshake.h"

namespace braid {
namespace {

template <class T>
void append(std::string& message, const T& value) {
  message.append(reinterpret_cast<const char*>(&value), sizeof value);
}

Digest prove(const std::string& secret, std::string message, const Nonce& first, const Nonce& second,
             const Claim& claim) {
  append(message, first);
  append(message, second);
  append(message, claim.group);
  append(message, claim.from_rank);
  append(message, claim.to_rank);
  append(message, claim.index);
  return hmac_sha256(bytes_of(secret), bytes_of(message));
}

}  // namespace

Digest prove_connect(const std::string& secret, const Challenge& challenge, const Claim& claim) {
  return prove(secret, "braid connect", challenge.nonce, claim.nonce, claim);
}

Digest prove_accept(const std::string& secret, const Challenge& challenge, const Claim& claim) {
  return prove(secret, "braid accept", claim.nonce, challenge.nonce, claim);
}

std::string check_greeting(const std::array<char, 8>& magic, uint32_t version) {
  if (magic != kMagic) return "it does not speak braid's protocol";
  if (version == kWireVersion) return "";
  return "it speaks version " + std::to_string(version) + " of the protocol, not " + std::to_string(kWireVersion);
}

}  // namespace braid

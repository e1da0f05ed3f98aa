// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/handshake.h"

namespace braid {
namespace {

template <class T>
void append(std::string& message, const T& value) {
  message.append(reinterpret_cast<const char*>(&value), sizeof value);
}

Digest prove(const std::string& secret, std::string message, uint32_t first_version, uint32_t second_version,
             const Nonce& first, const Nonce& second, const Opening& opening) {
  append(message, first_version);
  append(message, second_version);
  append(message, first);
  append(message, second);
  append(message, opening.group);
  append(message, opening.from_rank);
  append(message, opening.to_rank);
  append(message, opening.index);
  return hmac_sha256(bytes_of(secret), bytes_of(message));
}

// The proofs of the two directions have different labels, and each begins with the nonce of the other side.
Digest prove_to_connecting(const std::string& secret, const char* label, const Challenge& challenge,
                           const Opening& opening) {
  return prove(secret, label, opening.version, challenge.version, opening.nonce, challenge.nonce, opening);
}

}  // namespace

Digest prove_connect(const std::string& secret, const Challenge& challenge, const Opening& opening) {
  return prove(secret, "braid connect", challenge.version, opening.version, challenge.nonce, opening.nonce,
               opening);
}

Digest prove_accept(const std::string& secret, const Challenge& challenge, const Opening& opening) {
  return prove_to_connecting(secret, "braid accept", challenge, opening);
}

Digest prove_taken(const std::string& secret, const Challenge& challenge, const Opening& opening) {
  return prove_to_connecting(secret, "braid taken", challenge, opening);
}

std::string check_greeting(const std::array<char, 8>& magic, uint32_t version) {
  if (magic != kMagic) return "it does not speak braid's protocol";
  if (version == kHandshakeVersion) return "";
  return "it speaks version " + std::to_string(version) + " of the protocol, not " +
         std::to_string(kHandshakeVersion);
}

}  // namespace braid

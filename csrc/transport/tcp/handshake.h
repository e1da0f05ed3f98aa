// SPDX-License-Identifier: Apache-2.0
// How two processes prove to each other that both know a group's secret:
//   connecting -> accepting   Opening: the sender's rank and group, nonce_b
//   accepting -> connecting   Challenge: nonce_a
//   connecting -> accepting   HMAC(secret, "braid connect" | both versions | nonce_a | nonce_b | who)
//   accepting -> connecting   HMAC(secret, "braid accept" | both versions | nonce_b | nonce_a | who)
// The opening goes out at once, so that the acceptor can tell a member from a silent stranger before it does any
// work. The proofs cover the versions, so that nobody between can make two newer sides speak an older protocol.
// Fresh nonces on both sides make a recorded handshake worthless. The structs travel as they lie in memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/random.h"
#include "base/sha256.h"
#include "base/status.h"
#include "schedule/collective.h"

namespace braid {

static_assert(std::endian::native == std::endian::little, "the wire format is that of little-endian machines");

inline constexpr std::array<char, 8> kMagic = {'b', 'r', 'a', 'i', 'd', 't', 'c', 'p'};
inline constexpr uint32_t kHandshakeVersion = 2;
// After the handshake, accepting -> connecting: the accepting side leaves in good order.
inline constexpr std::byte kFarewell{'L'};

struct Challenge {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kHandshakeVersion;
  uint32_t reserved = 0;
  Nonce nonce;
};

struct Opening {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kHandshakeVersion;
  Node from_rank = -1;
  Node to_rank = -1;
  uint32_t index = 0;  // of the connection
  Nonce nonce;
  Digest group{};  // SHA-256 of the group's name
};

// All that the connecting side sends.
struct Claim {
  Opening opening;
  Digest proof{};
};

static_assert(sizeof(Challenge) == 32 && sizeof(Opening) == 72 && sizeof(Claim) == 104);

Digest prove_connect(const std::string& secret, const Challenge& challenge, const Opening& opening);
// The accepting side's answer. prove_accept: the connection is admitted. prove_taken: another process already
// holds this connection of the rank.
Digest prove_accept(const std::string& secret, const Challenge& challenge, const Opening& opening);
Digest prove_taken(const std::string& secret, const Challenge& challenge, const Opening& opening);

// Returns "" or a description of the error.
std::string check_greeting(const std::array<char, 8>& magic, uint32_t version);

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// The frames that travel between two members of a group, on every wire. A frame is a Frame header and its payload.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "schedule/collective.h"

namespace braid {

inline std::string rank_text(Node rank) { return "rank " + std::to_string(rank); }

// Names one message from one sender to one receiver inside a group. Collectives use their sequence number as
// stream; point-to-point messages use streams with the top bit set.
struct Tag {
  uint64_t stream = 0;
  uint64_t index = 0;

  auto operator<=>(const Tag&) const = default;
};
inline constexpr uint64_t kPointToPoint = uint64_t{1} << 63;
inline bool is_collective(const Tag& tag) { return (tag.stream & kPointToPoint) == 0; }

inline constexpr int kPlanBits = 38;
// The signature of the operation that the sender believes it is in. If two ranks have different signatures for one
// stream, the group fails with an error that names both. Every frame carries one, so it is packed into 16 bytes.
struct Signature {
  uint32_t kind : 4 = 0;  // CollectiveKind
  uint32_t dtype : 6 = 0;
  uint32_t op : 4 = 0;
  uint32_t root : 12 = 0;                // 0 for collectives without a root
  uint64_t bytes : 38 = 0;               // size of the whole operation; 0 if ranks may have different sizes
  uint32_t codec : 26 = 0;               // the number of its codec, from a layer above; 0: none
  uint64_t plan_digest : kPlanBits = 0;  // digest of how the operation is carried

  bool operator==(const Signature&) const = default;
};
// Signatures of larger operations have this size. Then only the plan's digest tells their sizes apart.
inline constexpr uint64_t kMostSignatureBytes = (uint64_t{1} << 38) - 1;

// The name of the codec with this number; "" if there is none. The layers above know codecs.
using CodecName = std::string (*)(uint32_t number);
// "all_reduce sum of 4096 bytes of float32". Without `codec_name`, a codec is described by its number.
std::string describe(const Signature& signature, CodecName codec_name = nullptr);
// A kMismatch error: `rank` has one operation for collective `stream`, `peer` has another.
Status disagree(uint64_t stream, Node rank, const Signature& signature, Node peer, const Signature& theirs,
                CodecName codec_name = nullptr);

enum class FrameKind : uint8_t {
  kMessage = 1,         // a whole message, small enough to be kept until its receive is posted
  kClearToSend = 2,     // receiver to sender: the memory is posted, send the pieces
  kPiece = 3,           // a part of a message at `offset`; only after kClearToSend
  kOffer = 4,           // sender to receiver: read the message in the sender's memory, at `offset`
  kTaken = 5,           // receiver to sender: the offer was read; the sender may use its memory again
  kFail = 6,            // the group has failed; payload: a packed Status
  kLeave = 7,           // the sender has closed the group in good order
  kAsk = 8,             // asks which stream the receiver is in
  kTell = 9,            // the answer to kAsk, in tag.stream
  kRequestToSend = 10,  // sender to receiver: a message waits; answered by kClearToSend
  kWindowUpdate = 11,   // receiver to sender: receives have got kMessages that count `message_bytes` in the window
  kWant = 12,           // receiver to sender: announce this message now, whatever the limits say
  kForget = 13,         // receiver to sender: kWant is settled
};
inline constexpr FrameKind kLastFrameKind = FrameKind::kForget;

struct Frame {
  FrameKind kind = FrameKind::kMessage;
  uint8_t was_announced = 0;  // kPiece: a kRequestToSend was sent before, maybe over another connection
  uint8_t reserved[2] = {};
  uint32_t payload_bytes = 0;
  Tag tag;
  uint64_t message_bytes = 0;  // size of the whole message
  uint64_t offset = 0;
  Signature signature;
};
static_assert(sizeof(Signature) == 16 && sizeof(Frame) == 56);

inline constexpr size_t kMostReasonBytes = 64 * 1024;  // in the payload of a kFail

std::string pack_status(const Status& status);
Status unpack_status(const std::string& packed);

}  // namespace braid

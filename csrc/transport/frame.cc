// SPDX-License-Identifier: Apache-2.0
#include "transport/frame.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/dtype.h"

namespace braid {

// A signature has room for each of them.
static_assert(kCollectiveKindCount <= 1 << 4 && kDTypeCount <= 1 << 6 && kReduceOpCount <= 1 << 4);
static_assert(kMaxRanks <= 1 << 12);

std::string describe(const Signature& signature, CodecName codec_name) {
  if (signature.kind >= kCollectiveKindCount || signature.dtype >= kDTypeCount || signature.op >= kReduceOpCount) {
    return "an unknown operation";
  }
  const auto kind = static_cast<CollectiveKind>(signature.kind);
  std::string text(name_of(kind));
  if (kind == CollectiveKind::kBarrier) return text;
  if (is_reduction(kind)) text += " " + std::string(name_of(static_cast<ReduceOp>(signature.op)));
  if (signature.bytes > 0) {
    text += signature.bytes == kMostSignatureBytes ? " of at least " : " of ";
    text += std::to_string(signature.bytes) + " bytes";
  }
  text += " of " + std::string(name_of(static_cast<DType>(signature.dtype)));
  if (signature.codec != 0) {
    const std::string name = codec_name != nullptr ? codec_name(signature.codec) : "";
    text += " by the codec " + (name.empty() ? std::to_string(signature.codec) : name);
  }
  if (has_root(kind)) text += " with root " + std::to_string(signature.root);
  return text;
}

Status disagree(uint64_t stream, Node rank, const Signature& signature, Node peer, const Signature& theirs,
                CodecName codec_name) {
  const std::string mine_text = describe(signature, codec_name), their_text = describe(theirs, codec_name);
  std::string text = "ranks disagree about operation " + std::to_string(stream) + ": " + rank_text(rank) +
                     " is in " + mine_text + ", " + rank_text(peer) + " in " + their_text;
  if (mine_text == their_text) text += ", carried by another algorithm";
  return {Code::kMismatch, std::move(text), peer};
}

std::string pack_status(const Status& status) {
  std::string packed(1 + sizeof(int32_t), '\0');
  packed[0] = static_cast<char>(status.code());
  const int32_t rank = status.rank();
  std::memcpy(packed.data() + 1, &rank, sizeof rank);
  return packed + status.message();
}

namespace {

// The number of bytes of a character that begins with `first`; 0 if no character does.
size_t character_bytes(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;
  return first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
}

// True if `second` may follow `first` in a character: rejects overlong encodings and code points that do not
// exist.
bool may_follow(unsigned char first, unsigned char second) {
  const unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  return least <= second && second <= most;
}

// Returns the text in valid UTF-8, which Python requires. Drops the last character if the sender had to cut it.
// Replaces a byte that belongs to no character by a question mark.
std::string readable(std::string_view text) {
  std::string whole;
  while (!text.empty()) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const size_t bytes = character_bytes(byte(0));
    size_t right = std::min<size_t>(bytes, 1);
    while (right < std::min(bytes, text.size()) &&
           (right == 1 ? may_follow(byte(0), byte(1)) : (byte(right) & 0xc0) == 0x80)) {
      ++right;
    }
    if (right == text.size() && right < bytes) break;
    const bool is_whole = right > 0 && right == bytes;
    whole += is_whole ? text.substr(0, bytes) : "?";
    text.remove_prefix(is_whole ? bytes : 1);
  }
  return whole;
}

}  // namespace

Status unpack_status(const std::string& packed) {
  int32_t rank = -1;
  if (packed.size() < 1 + sizeof rank) return {Code::kAborted, "a peer failed without saying why"};
  std::memcpy(&rank, packed.data() + 1, sizeof rank);
  const auto code = static_cast<Code>(packed[0]);
  const bool known = code > Code::kOk && code <= Code::kInternal;
  const std::string_view text = std::string_view(packed).substr(1 + sizeof rank);
  return {known ? code : Code::kAborted, readable(text), rank};
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "transport/frame.h"

#include <cstring>
#include <string_view>

#include "base/dtype.h"
#include "codec/lossy.h"

namespace braid {

std::string describe(const Intent& intent) {
  if (intent.kind >= kCollectiveKindCount || intent.dtype >= kDTypeCount || intent.op >= kReduceOpCount) {
    return "an unknown operation";
  }
  const auto kind = static_cast<CollectiveKind>(intent.kind);
  std::string text(name_of(kind));
  if (kind == CollectiveKind::kBarrier) return text;
  if (is_reduction(kind)) text += " " + std::string(name_of(static_cast<ReduceOp>(intent.op)));
  if (intent.bytes > 0) text += " of " + std::to_string(intent.bytes) + " bytes";
  text += " of " + std::string(name_of(static_cast<DType>(intent.dtype)));
  if (!has_root(kind) && intent.root != 0) {
    const std::string codec = codec_of_word(intent.root);
    text += " by the codec " + (codec.empty() ? std::to_string(intent.root) : codec);
  }
  if (has_root(kind)) text += " with root " + std::to_string(intent.root);
  return text;
}

Status disagree(uint64_t stream, Node rank, const Intent& intent, Node peer, const Intent& theirs) {
  std::string text = "ranks disagree about operation " + std::to_string(stream) + ": " + rank_text(rank) +
                     " is in " + describe(intent) + ", " + rank_text(peer) + " in " + describe(theirs);
  if (describe(intent) == describe(theirs)) text += ", carried by another algorithm";
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

// The text up to its last whole character, in UTF-8: whoever sent it may have had to cut it.
std::string_view whole_characters(std::string_view text) {
  size_t at = text.size();
  while (at > 0 && text.size() - at < 4) {
    const auto byte = static_cast<unsigned char>(text[--at]);
    if ((byte & 0xc0) == 0x80) continue;  // in the midst of a character
    const size_t bytes = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return text.size() - at < bytes ? text.substr(0, at) : text;
  }
  return text;
}

}  // namespace

Status unpack_status(const std::string& packed) {
  int32_t rank = -1;
  if (packed.size() < 1 + sizeof rank) return {Code::kAborted, "a peer failed without saying why"};
  std::memcpy(&rank, packed.data() + 1, sizeof rank);
  const auto code = static_cast<Code>(packed[0]);
  const bool known = code > Code::kOk && code <= Code::kInternal;
  const std::string_view text = std::string_view(packed).substr(1 + sizeof rank);
  return {known ? code : Code::kAborted, std::string(whole_characters(text)), rank};
}

}  // namespace braid

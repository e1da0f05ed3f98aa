// SPDX-License-Identifier: Apache-2.0
#include "transport/frame.h"

#include <cstring>

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

Status unpack_status(const std::string& packed) {
  int32_t rank = -1;
  if (packed.size() < 1 + sizeof rank) return {Code::kAborted, "a peer failed without saying why"};
  std::memcpy(&rank, packed.data() + 1, sizeof rank);
  const auto code = static_cast<Code>(packed[0]);
  const bool known = code > Code::kOk && code <= Code::kInternal;
  return {known ? code : Code::kAborted, packed.substr(1 + sizeof rank), rank};
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// Throws bytes at the decoders of every codec. Whatever they are: nothing outside `out` is written, a refused
// message leaves it untouched, and decode() and decode_add() agree on what is refused.
//
//   byte 0      which codec, and whether its header is put right and its size fitted, to get past the first checks
//   bytes 1, 2  how many elements
//   the rest    the message
#include <cstdint>
#include <cstring>
#include <vector>

#include "codec/layout.h"

namespace braid {
namespace {

constexpr float kUntouched = 1234.5f;

void require(bool truth) {
  if (!truth) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const auto kind = static_cast<CodecKind>(data[0] % kCodecKindCount);
  const Codec codec{kind, traits(kind).is_sparse ? 4 + data[0] % 16u : 0};
  const size_t n = (data[1] | size_t{data[2]} << 8) % 5000;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> message(bytes + 3, bytes + size);
  const bool is_fitted = data[0] >= 64;
  if (is_fitted) {
    message.resize(encoded_bytes(codec, n));
    const MessageHeader header = header_for(codec, n, data[1]);
    std::memcpy(message.data(), &header, sizeof header);
  }
  message.shrink_to_fit();

  std::vector<float> out(n, kUntouched), into(n, kUntouched);
  const bool ok = decode(codec, message, out.data(), n).ok();
  require(decode_add(codec, message, into.data(), n).ok() == ok);
  require(ok || !is_fitted || kind == CodecKind::kTopK);
  if (!ok) {
    for (size_t i = 0; i < n; ++i) require(out[i] == kUntouched && into[i] == kUntouched);
  }
  return 0;
}

}  // namespace braid

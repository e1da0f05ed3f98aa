// SPDX-License-Identifier: Apache-2.0
// Throws bytes at the decoders of every codec. Whatever they are: nothing outside `out` is written, a refused
// message leaves it untouched, and decode() and decode_add() agree on what is refused.
//
//   byte 0      which codec, and whether its header is put right and its size fitted, to get past the first checks
//   bytes 1, 2  how many elements
//   the rest    the message
#include <cstring>
#include <vector>

#include "codec/layout.h"
#include "fuzz/targets.h"

namespace braid::fuzz {

void codec_target(Input input) {
  constexpr float kUntouched = 1234.5f;
  if (input.size() < 3) return;
  const auto kind = static_cast<CodecKind>(input[0] % kCodecKindCount);
  const Codec codec{kind, traits(kind).is_sparse ? 4 + input[0] % 16u : 0};
  const size_t n = (input[1] | size_t{input[2]} << 8) % 5000;
  const auto bytes = std::as_bytes(input.subspan(3));
  std::vector<std::byte> message(bytes.begin(), bytes.end());
  const bool is_fitted = input[0] >= 64;
  if (is_fitted) {
    message.resize(encoded_bytes(codec, n));
    const MessageHeader header = header_for(codec, n, input[1]);
    std::memcpy(message.data(), &header, sizeof header);
  }
  message.shrink_to_fit();

  std::vector<float> out(n, kUntouched), into(n, kUntouched);
  const bool ok = decode(codec, message, out.data(), n).ok();
  require(decode_add(codec, message, into.data(), n).ok() == ok, "decode and decode_add agree");
  require(ok || !is_fitted || kind == CodecKind::kTopK, "a message of the right form is decoded");
  if (ok) return;
  const auto untouched = [](float value) { return value == kUntouched; };
  require(std::all_of(out.begin(), out.end(), untouched) && std::all_of(into.begin(), into.end(), untouched),
          "a refused message leaves the output as it was");
}

}  // namespace braid::fuzz

// SPDX-License-Identifier: Apache-2.0
#include "codec/layout.h"

#include <cstring>

#include "codec/formulas.h"

namespace braid {
namespace {

constexpr size_t padded(size_t bytes) { return (bytes + 15) / 16 * 16; }

// The data of one block, in bytes.
size_t block_data_bytes(CodecKind kind) {
  switch (kind) {
    case CodecKind::kFloat8E4M3:
    case CodecKind::kFloat8E5M2:
    case CodecKind::kInt8:
    case CodecKind::kQsgd: return formula::kBlock;
    case CodecKind::kInt4: return formula::kBlock / 2;
    case CodecKind::kSign: return formula::kSignBlock / 8;
    default: return 0;
  }
}

}  // namespace

MessageLayout message_layout(const Codec& codec, size_t elements) {
  MessageLayout layout;
  size_t at = sizeof(MessageHeader);
  switch (codec.kind) {
    case CodecKind::kFloat16:
    case CodecKind::kBFloat16: layout.data_bytes = 2 * elements; break;
    case CodecKind::kTopK:
      layout.entries = (elements + codec.every - 1) / codec.every;
      layout.positions_at = at;
      at += padded(layout.entries * sizeof(uint32_t));
      layout.data_bytes = layout.entries * sizeof(float);
      break;
    case CodecKind::kRandomK:
      layout.entries = (elements + codec.every - 1) / codec.every;
      layout.data_bytes = layout.entries * sizeof(float);
      break;
    default: {
      const auto block = static_cast<size_t>(traits(codec.kind).block_elements);
      layout.scales_at = at;
      layout.scale_count = (elements + block - 1) / block;
      at += padded(layout.scale_count * sizeof(float));
      layout.data_bytes = layout.scale_count * block_data_bytes(codec.kind);
    }
  }
  layout.data_at = at;
  layout.bytes = at + padded(layout.data_bytes);
  return layout;
}

MessageHeader header_for(const Codec& codec, size_t elements, uint32_t seed) {
  MessageHeader header;
  header.kind = static_cast<uint8_t>(codec.kind);
  header.elements = static_cast<uint32_t>(elements);
  header.entries = static_cast<uint32_t>(message_layout(codec, elements).entries);
  header.seed = codec.kind == CodecKind::kRandomK ? seed : 0;
  return header;
}

Result<MessageHeader> read_header(const Codec& codec, ConstBytes message, size_t elements) {
  const auto bad = [&](const std::string& what) {
    return Status(Code::kInvalidArgument,
                  to_text(codec) + " message of " + std::to_string(elements) + " elements: " + what);
  };
  const size_t bytes = encoded_bytes(codec, elements);
  if (message.size() != bytes) {
    return bad("has " + std::to_string(message.size()) + " bytes instead of " + std::to_string(bytes));
  }
  MessageHeader header;
  std::memcpy(&header, message.data(), sizeof header);
  const MessageHeader expected = header_for(codec, elements, header.seed);
  if (std::memcmp(&header, &expected, sizeof header) != 0) return bad("its header is another's");
  return header;
}

}  // namespace braid

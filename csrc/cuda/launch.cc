// SPDX-License-Identifier: Apache-2.0
#include "cuda/launch.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "codec/layout.h"

namespace braid::cuda {
namespace {

// Of the kernels' tiles (tiles.cuh).
constexpr size_t kQuads = 512, kColumns = 1024;

constexpr size_t divided(size_t a, size_t b) { return (a + b - 1) / b; }

// Enough to fill the device, each with several turns, so that the last turn costs little.
constexpr uint32_t kBlocksEach = 16;
// Of those that count in shared memory and add it up in the end.
constexpr uint32_t kCountingBlocksEach = 4;

// For so many units of which a block takes `of_block` in a turn.
uint32_t blocks_for(const Device& device, size_t units, size_t of_block, uint32_t each = kBlocksEach) {
  const size_t most = std::max<size_t>(1, size_t{device.multiprocessors()} * each);
  return static_cast<uint32_t>(std::clamp<size_t>(divided(units, of_block), 1, most));
}
uint32_t blocks_for_tiles(const Device& device, size_t elements, size_t tile) {
  return blocks_for(device, divided(elements, tile), kWarps);
}

std::string short_name(const Codec& codec) { return std::string(traits(codec.kind).name); }

Status check_floats(const void* floats, const char* what) {
  if (reinterpret_cast<uintptr_t>(floats) % sizeof(float) == 0) return {};
  return {Code::kInvalidArgument, std::string(what) + " lies at no multiple of 4"};
}

Status check_message(const Codec& codec, size_t elements, const void* message, size_t bytes) {
  const auto bad = [&](const std::string& what) {
    return Status(Code::kInvalidArgument,
                  to_text(codec) + " message of " + std::to_string(elements) + " elements: " + what);
  };
  if (elements > kMostEncodedElements) return bad("at most 2^31 elements make one message");
  const size_t expected = encoded_bytes(codec, elements);
  if (bytes != expected) {
    return bad("has " + std::to_string(bytes) + " bytes instead of " + std::to_string(expected));
  }
  if (message == nullptr || reinterpret_cast<uintptr_t>(message) % 16 != 0) {
    return bad("lies at no multiple of 16");
  }
  return {};
}

void set_message(Job& job, const Codec& codec, uint32_t seed, const void* message) {
  const MessageLayout layout = message_layout(codec, job.elements);
  const MessageHeader header = header_for(codec, job.elements, seed);
  std::memcpy(job.plan.header, &header, sizeof header);
  job.plan.scales_at = layout.scales_at;
  job.plan.scale_count = layout.scale_count;
  job.plan.positions_at = layout.positions_at;
  job.plan.data_at = layout.data_at;
  job.plan.data_bytes = layout.data_bytes;
  job.plan.bytes = layout.bytes;
  job.entries = static_cast<uint32_t>(layout.entries);
  job.every = codec.every;
  job.seed = seed;
  job.message = static_cast<unsigned char*>(const_cast<void*>(message));
}

size_t tile_of(const Codec& codec) { return codec.kind == CodecKind::kSign ? kColumns : kQuads; }

Status encode_top_k(Device& device, Job& job, Stream stream) {
  if (Status s = device.zero(job.state, offsetof(TopKState, above), stream); !s.ok()) return s;
  const uint32_t counting = blocks_for(device, divided(job.elements, kQuads), kWarps, kCountingBlocksEach);
  job.shift = 20;
  if (Status s = device.launch("top_k_gather", counting, job, stream); !s.ok()) return s;
  if (job.elements == 0) return {};
  for (const uint32_t shift : {10u, 0u}) {
    job.shift = shift;
    if (Status s = device.launch("top_k_refine", counting, job, stream); !s.ok()) return s;
  }
  job.chunk = divided(divided(job.elements, kMostChunks), kColumns) * kColumns;
  const uint32_t blocks = blocks_for(device, divided(job.elements, job.chunk), kWarps);
  if (Status s = device.launch("top_k_count", blocks, job, stream); !s.ok()) return s;
  return device.launch("top_k_write", blocks, job, stream);
}

Status encode_random_k(Device& device, Job& job, Stream stream) {
  const uint32_t blocks = blocks_for(device, job.entries, kThreads);
  if (Status s = device.launch("send_chosen", blocks, job, stream); !s.ok()) return s;
  if (job.elements == 0) return {};
  if (Status s = device.launch("keep", blocks_for_tiles(device, job.elements, kQuads), job, stream); !s.ok()) {
    return s;
  }
  if (job.left == nullptr) return {};
  return device.launch("drop_chosen", blocks, job, stream);
}

}  // namespace

Status pack(Device& device, const Table& tensors, float scale, float* out, Stream stream) {
  Job job;
  job.scale = scale;
  job.left = out;
  if (Status s = check_floats(out, "what is packed into"); !s.ok()) return s;
  if (Status s = tensors.write_to(job); !s.ok()) return s;
  if (job.elements == 0) return {};
  return device.launch("pack", blocks_for_tiles(device, job.elements, kQuads), job, stream);
}

Status unpack(Device& device, const float* floats, const Table& tensors, float scale, bool add, Stream stream) {
  Job job;
  job.scale = scale;
  job.floats = floats;
  job.add = add ? 1 : 0;
  if (Status s = check_floats(floats, "what is unpacked"); !s.ok()) return s;
  if (Status s = tensors.write_to(job); !s.ok()) return s;
  if (job.elements == 0) return {};
  return device.launch("unpack", blocks_for_tiles(device, job.elements, kQuads), job, stream);
}

size_t encode_scratch_bytes(const Codec& codec, size_t elements, bool has_residual) {
  if (codec.kind != CodecKind::kTopK) return 0;
  return sizeof(TopKState) + (has_residual ? 0 : elements * sizeof(float));
}

Status encode(Device& device, const Codec& codec, const Table& tensors, const EncodeWork& work, Stream stream) {
  Job job;
  if (Status s = check_message(codec, tensors.elements(), work.message, work.message_bytes); !s.ok()) return s;
  if (Status s = check_floats(work.residual, "the residual"); !s.ok()) return s;
  if (Status s = tensors.write_to(job); !s.ok()) return s;
  set_message(job, codec, work.seed, work.message);
  job.scale = work.scale;
  job.floats = work.residual;
  job.left = work.residual;
  if (codec.kind == CodecKind::kRandomK) return encode_random_k(device, job, stream);
  if (codec.kind == CodecKind::kTopK) {
    if (work.scratch == nullptr || reinterpret_cast<uintptr_t>(work.scratch) % 16 != 0) {
      return {Code::kInvalidArgument, "top_k needs scratch memory at a multiple of 16"};
    }
    job.state = static_cast<TopKState*>(work.scratch);
    if (job.left == nullptr) job.left = reinterpret_cast<float*>(job.state + 1);
    return encode_top_k(device, job, stream);
  }
  return device.launch(("encode_" + short_name(codec)).c_str(),
                       blocks_for_tiles(device, job.elements, tile_of(codec)), job, stream);
}

Status decode(Device& device, const Codec& codec, const Table& tensors, const DecodeWork& work, Stream stream) {
  Job job;
  if (Status s = check_message(codec, tensors.elements(), work.message, work.message_bytes); !s.ok()) return s;
  if (work.flag == nullptr) return {Code::kInvalidArgument, "decoding needs a flag to raise"};
  if (Status s = check_floats(work.flag, "the flag"); !s.ok()) return s;
  if (Status s = tensors.write_to(job); !s.ok()) return s;
  set_message(job, codec, 0, work.message);
  job.scale = work.scale;
  job.add = work.add ? 1 : 0;
  job.flag = work.flag;
  if (!traits(codec.kind).is_sparse) {
    return device.launch(("decode_" + short_name(codec)).c_str(),
                         blocks_for_tiles(device, job.elements, tile_of(codec)), job, stream);
  }
  if (Status s = device.zero(job.flag, sizeof *job.flag, stream); !s.ok()) return s;
  const uint32_t blocks = blocks_for(device, job.entries, kThreads);
  if (Status s = device.launch("check_message", blocks, job, stream); !s.ok()) return s;
  if (job.elements == 0) return {};
  if (!work.add) {
    if (Status s = device.launch("clear", blocks_for_tiles(device, job.elements, kQuads), job, stream); !s.ok()) {
      return s;
    }
  }
  return device.launch("scatter", blocks, job, stream);
}

}  // namespace braid::cuda

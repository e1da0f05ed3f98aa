// SPDX-License-Identifier: Apache-2.0
#include "c10d/packed.h"

#include <ATen/ops/empty.h>

#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "base/copy.h"

namespace braid::adapter {
namespace {

// Largest operations to pack, in bytes: up to here two copies cost less than one more operation (bench/bucket).
constexpr size_t kMostOnOneHost = 32 * 1024;
constexpr size_t kMostBetweenHosts = 128 * 1024;

// The blocks of the side that has more blocks. The other side has one block, as long as this rank's block here.
std::vector<ConstBytes> blocks_of(const Call& call) {
  const std::vector<Bytes>& outputs = call.operation.outputs;
  if (call.operation.inputs.size() > outputs.size()) return call.operation.inputs;
  return {outputs.begin(), outputs.end()};
}

size_t bytes_of(const Call& call) {
  size_t bytes = 0;
  for (const ConstBytes block : blocks_of(call)) bytes += block.size();
  return bytes;
}

// Cuts the first bytes off `room` and returns them.
Bytes take(Bytes& room, size_t bytes) {
  const Bytes taken = room.first(bytes);
  room = room.subspan(bytes);
  return taken;
}

// Memory for the packed blocks: room[i] holds block i of all calls, end to end.
std::vector<Bytes> room_for(const std::vector<Call>& calls, Tensors& keeper) {
  std::vector<size_t> sizes(blocks_of(calls.front()).size());
  for (const Call& call : calls) {
    const std::vector<ConstBytes> blocks = blocks_of(call);
    for (size_t i = 0; i < sizes.size(); ++i) sizes[i] += blocks[i].size();
  }
  const size_t bytes = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
  const at::Tensor flat = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  keeper.keep(flat);
  Bytes left(static_cast<std::byte*>(flat.mutable_data_ptr()), bytes);
  std::vector<Bytes> room;
  for (const size_t size : sizes) room.push_back(take(left, size));
  return room;
}

Call one_of(std::vector<Call> calls, int rank) {
  Call one;
  one.type = calls.front().type;
  one.name = calls.front().name;
  one.asynchronous = calls.front().asynchronous;
  one.operation = calls.front().operation;
  const std::vector<Bytes> room = room_for(calls, one.tensors);
  const auto all_or_own = [&](size_t blocks) {  // a side with one block uses this rank's block of the other side
    return blocks == room.size() ? room : std::vector{room[static_cast<size_t>(rank)]};
  };
  std::vector<Bytes> in = all_or_own(one.operation.inputs.size());
  const std::vector<Bytes> out = all_or_own(one.operation.outputs.size());
  one.operation.inputs.assign(in.begin(), in.end());
  one.operation.outputs = out;
  TensorList results;
  for (const Call& call : calls) {
    for (size_t i = 0; i < in.size(); ++i) {
      const ConstBytes block = call.operation.inputs[i];
      copy_bytes(take(in[i], block.size()).data(), block.data(), block.size());
    }
    one.inputs.insert(one.inputs.end(), call.inputs.begin(), call.inputs.end());
    results.insert(results.end(), call.tensors.results().begin(), call.tensors.results().end());
  }
  const auto parts = std::make_shared<std::vector<Call>>(std::move(calls));
  one.tensors.finish_with(std::move(results), [parts, out] {
    std::vector<Bytes> from = out;
    for (Call& part : *parts) {
      for (size_t i = 0; i < out.size(); ++i) {
        const Bytes block = part.operation.outputs[i];
        copy_bytes(block.data(), take(from[i], block.size()).data(), block.size());
      }
      part.tensors.copy_back();
    }
  });
  return one;
}

}  // namespace

std::vector<Call> packed(std::vector<Call> calls, int rank, bool between_hosts) {
  const size_t most_bytes = between_hosts ? kMostBetweenHosts : kMostOnOneHost;
  std::vector<std::vector<Call>> groups;
  std::map<DType, size_t> of_small;  // the index of the group of small calls
  for (Call& call : calls) {
    size_t at = groups.size();
    if (bytes_of(call) <= most_bytes) at = of_small.try_emplace(call.operation.dtype, at).first->second;
    if (at == groups.size()) groups.emplace_back();
    groups[at].push_back(std::move(call));
  }
  std::vector<Call> fewer;
  for (std::vector<Call>& group : groups) {
    fewer.push_back(group.size() == 1 ? std::move(group.front()) : one_of(std::move(group), rank));
  }
  return fewer;
}

}  // namespace braid::adapter

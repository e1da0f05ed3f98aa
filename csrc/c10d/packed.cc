// SPDX-License-Identifier: Apache-2.0
#include "c10d/packed.h"

#include <ATen/ops/empty.h>

#include <map>
#include <memory>
#include <utility>

#include "base/copy.h"

namespace braid::adapter {
namespace {

size_t bytes_of(const Call& call) { return call.operation.inputs[0].size(); }

Call one_of(std::vector<Call> calls) {
  Call one;
  one.type = calls.front().type;
  one.name = calls.front().name;
  one.asynchronous = calls.front().asynchronous;
  one.operation = calls.front().operation;
  size_t bytes = 0;
  for (const Call& call : calls) bytes += bytes_of(call);
  const at::Tensor flat = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  auto* const memory = static_cast<std::byte*>(flat.mutable_data_ptr());
  one.operation.inputs = {ConstBytes(memory, bytes)};
  one.operation.outputs = {Bytes(memory, bytes)};
  TensorList results;
  size_t at = 0;
  for (Call& call : calls) {
    copy_bytes(memory + at, call.operation.inputs[0].data(), bytes_of(call));
    at += bytes_of(call);
    one.inputs.insert(one.inputs.end(), call.inputs.begin(), call.inputs.end());
    for (const at::Tensor& tensor : call.tensors.results()) results.push_back(tensor);
  }
  one.tensors.keep(flat);
  const auto parts = std::make_shared<std::vector<Call>>(std::move(calls));
  one.tensors.finish_with(std::move(results), [parts, memory] {
    const std::byte* from = memory;
    for (Call& part : *parts) {
      const Bytes out = part.operation.outputs[0];
      copy_bytes(out.data(), from, out.size());
      from += out.size();
      part.tensors.copy_back();
    }
  });
  return one;
}

}  // namespace

std::vector<Call> packed(std::vector<Call> calls, size_t most_bytes) {
  std::vector<std::vector<Call>> groups;
  std::map<DType, size_t> of_small;  // the group of small ones
  for (Call& call : calls) {
    size_t at = groups.size();
    if (bytes_of(call) <= most_bytes) at = of_small.try_emplace(call.operation.dtype, at).first->second;
    if (at == groups.size()) groups.emplace_back();
    groups[at].push_back(std::move(call));
  }
  std::vector<Call> fewer;
  for (std::vector<Call>& group : groups) {
    fewer.push_back(group.size() == 1 ? std::move(group.front()) : one_of(std::move(group)));
  }
  return fewer;
}

}  // namespace braid::adapter

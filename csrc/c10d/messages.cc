// SPDX-License-Identifier: Apache-2.0
// Backend's point-to-point messages.
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include "c10d/backend.h"
#include "c10d/gil.h"

namespace braid::adapter {
namespace {

Call call_message(::c10d::OpType type, const char* name, int peer, const at::Tensor& tensor) {
  Call call;
  call.type = type;
  call.name = name;
  call.peer = peer;
  call.inputs = {tensor};
  return call;
}

}  // namespace

Backend::Work Backend::send(TensorList& tensors, int to, int tag) {
  const at::Tensor& tensor = check_message(place(), tensors, to, tag, {"send"});
  const WithoutGil without_gil;
  Call call = call_message(::c10d::OpType::SEND, "send", to, tensor);
  call.message = {static_cast<uint32_t>(tag), call.tensors.read(tensor), {}};
  const std::string title = title_of(call.name);
  return begin(call, title.empty() ? nullptr : title.c_str());
}

Backend::Work Backend::recv(TensorList& tensors, int from, int tag) {
  check_message(place(), tensors, from, tag, {"recv"});
  return receive(tensors, from, tag, ::c10d::OpType::RECV, "recv");
}

Backend::Work Backend::recvAnysource(TensorList& tensors, int tag) {
  check_message(place(), tensors, rank_, tag, {"recv from any rank"});
  return receive(tensors, kAnyNode, tag, ::c10d::OpType::RECVANYSOURCE, "recvAnySource");
}

Backend::Work Backend::receive(TensorList& tensors, int from, int tag, ::c10d::OpType type, const char* name) {
  const WithoutGil without_gil;
  const at::Tensor& tensor = tensors.front();
  Call call = call_message(type, name, from, tensor);
  call.message = {static_cast<uint32_t>(tag), {}, call.tensors.write(tensor, {name})};
  const std::string title = title_of(call.name);
  return begin(call, title.empty() ? nullptr : title.c_str());
}

}  // namespace braid::adapter

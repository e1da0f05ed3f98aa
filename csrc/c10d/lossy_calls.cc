// SPDX-License-Identifier: Apache-2.0
// Calls of calls.h with a codec: all_reduce and reduce_scatter.
#include <c10/util/Exception.h>

#include "c10d/calls.h"

namespace braid::adapter {
namespace {

// `whole`: the residual must have as many elements as this tensor.
Call make_lossy(Call call, const at::Tensor& whole, const std::string& codec,
                const std::optional<at::Tensor>& residual, uint32_t seed) {
  const auto parsed = codec_from_text(codec);
  TORCH_CHECK_VALUE(parsed.ok(), "braid lossy_", call.name, ": ", parsed.status().message());
  call.operation.lossy = Lossy{parsed.value(), nullptr, seed};
  if (!residual) return call;
  const Subject what{call.name, "residual"};
  check_tensor(*residual, what);
  TORCH_CHECK_TYPE(residual->scalar_type() == at::kFloat, "braid ", what, " has dtype ", residual->scalar_type(),
                   ", expected Float, whatever the tensor is of");
  TORCH_CHECK_VALUE(residual->numel() == whole.numel(), "braid ", what, " has ", residual->numel(),
                    " elements for a tensor of ", whole.numel());
  TORCH_CHECK_VALUE(residual->is_contiguous(), "braid ", what, " must be contiguous: it is changed where it lies");
  call.operation.lossy->residual = reinterpret_cast<float*>(call.tensors.change(*residual).data());
  return call;
}

}  // namespace

Call call_lossy_all_reduce(const at::Tensor& tensor, const std::string& codec,
                           const std::optional<at::Tensor>& residual, uint32_t seed,
                           const ::c10d::AllreduceOptions& options) {
  return make_lossy(call_all_reduce(tensor, options), tensor, codec, residual, seed);
}

Call call_lossy_reduce_scatter(Place place, const at::Tensor& output, const at::Tensor& input,
                               const std::string& codec, const std::optional<at::Tensor>& residual, uint32_t seed,
                               const ::c10d::ReduceScatterOptions& options) {
  return make_lossy(call_reduce_scatter_from(place, output, input, options), input, codec, residual, seed);
}

}  // namespace braid::adapter

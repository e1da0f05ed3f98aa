// SPDX-License-Identifier: Apache-2.0
// Turns the arguments of a c10d call into an Operation on memory. Throws an error that names a wrong argument.
// These functions touch no group, so wrong arguments harm none.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "c10d/arguments.h"

namespace braid::adapter {

Call call_all_reduce(const at::Tensor& tensor, const ::c10d::AllreduceOptions& options);
// The tensor must be float32, float16 or bfloat16. The residual must be float32, contiguous, and have as many
// elements; it is updated in place.
Call call_lossy_all_reduce(const at::Tensor& tensor, const std::string& codec,
                           const std::optional<at::Tensor>& residual, uint32_t seed,
                           const ::c10d::AllreduceOptions& options);
Call call_lossy_reduce_scatter(Place place, const at::Tensor& output, const at::Tensor& input,
                               const std::string& codec, const std::optional<at::Tensor>& residual, uint32_t seed,
                               const ::c10d::ReduceScatterOptions& options);
Call call_broadcast(Place place, const at::Tensor& tensor, const ::c10d::BroadcastOptions& options);
Call call_reduce(Place place, const at::Tensor& tensor, const ::c10d::ReduceOptions& options);
Call call_all_gather(Place place, const TensorList& outputs, const at::Tensor& input,
                     const ::c10d::AllgatherOptions& options);
// Takes one tensor in place of a list and cuts its bytes into one block per rank.
Call call_all_gather_into(Place place, const at::Tensor& output, const at::Tensor& input,
                          const ::c10d::AllgatherOptions& options);
Call call_reduce_scatter(Place place, const at::Tensor& output, const TensorList& inputs,
                         const ::c10d::ReduceScatterOptions& options);
Call call_reduce_scatter_from(Place place, const at::Tensor& output, const at::Tensor& input,
                              const ::c10d::ReduceScatterOptions& options);
Call call_all_to_all(Place place, const TensorList& outputs, const TensorList& inputs,
                     const ::c10d::AllToAllOptions& options);
// Splits count rows of dimension 0. Empty splits mean equal splits.
Call call_all_to_all_single(Place place, const at::Tensor& output, const at::Tensor& input,
                            const std::vector<int64_t>& output_splits, const std::vector<int64_t>& input_splits,
                            const ::c10d::AllToAllOptions& options);
// `outputs` has one tensor per rank on the root, and none on other ranks. The same holds for the inputs of
// scatter.
Call call_gather(Place place, const TensorList& outputs, const at::Tensor& input,
                 const ::c10d::GatherOptions& options);
Call call_scatter(Place place, const at::Tensor& output, const TensorList& inputs,
                  const ::c10d::ScatterOptions& options);
Call call_barrier(const ::c10d::BarrierOptions& options);

}  // namespace braid::adapter

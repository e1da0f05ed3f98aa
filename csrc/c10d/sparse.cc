// SPDX-License-Identifier: Apache-2.0
// The all-reduce of sparse COO tensors. Every rank gathers the indices and values of all ranks. It adds them up in
// the order of ranks, so that all ranks get the same bits.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "c10d/backend.h"
#include "c10d/gil.h"

namespace braid::adapter {
namespace {

constexpr Subject kWhat{"all_reduce of a sparse tensor"};
constexpr size_t kMostDims = 60;

// The facts that ranks tell each other about their tensors.
struct Outline {
  int64_t dtype = 0;
  int64_t sparse_dims = 0;
  int64_t dims = 0;
  int64_t sizes[kMostDims] = {};
  int64_t elements = 0;  // number of specified elements; may differ between ranks

  bool fits(const Outline& other) const {
    return dtype == other.dtype && sparse_dims == other.sparse_dims && dims == other.dims &&
           std::equal(sizes, sizes + dims, other.sizes);
  }
};

Outline outline_of(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.dim() <= static_cast<int64_t>(kMostDims), "braid ", kWhat, " has ", tensor.dim(),
                    " dimensions, more than ", kMostDims);
  Outline outline{
      static_cast<int64_t>(tensor.scalar_type()), tensor.sparse_dim(), tensor.dim(), {}, tensor._nnz()};
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), outline.sizes);
  return outline;
}

// One uninitialised tensor per rank, with that rank's number of elements in dimension `dim`.
TensorList room_for(const std::vector<Outline>& outlines, const at::Tensor& like, int64_t dim) {
  TensorList list;
  for (const Outline& outline : outlines) {
    std::vector<int64_t> sizes = like.sizes().vec();
    sizes[static_cast<size_t>(dim)] = outline.elements;
    list.push_back(at::empty(sizes, like.options()));
  }
  return list;
}

// The dtype for the additions. 16-bit floats would be rounded at every addition.
at::ScalarType sum_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

void add_up(const at::Tensor& result, const TensorList& indices, const TensorList& values, int divisor) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor all_values = at::cat(values);
  at::Tensor sum = at::_sparse_coo_tensor_unsafe(at::cat(indices, 1),
                                                 all_values.to(sum_type(result.scalar_type())), result.sizes());
  sum = sum.coalesce();
  if (divisor > 1) sum._values().div_(divisor);
  result.copy_(sum.to(result.scalar_type()));
}

}  // namespace

Backend::Work Backend::allreduce_sparse(TensorList& tensors, const ::c10d::AllreduceOptions& options) {
  const at::Tensor tensor = only(tensors, {"all_reduce"});
  TORCH_CHECK_TYPE(tensor.layout() == at::kSparse && tensor.is_cpu(), "braid ", kWhat,
                   " takes a COO tensor on the CPU, got layout ", tensor.layout(), " on ", tensor.device());
  const auto op = options.reduceOp.op_;
  TORCH_CHECK_VALUE(op == ::c10d::ReduceOp::SUM || op == ::c10d::ReduceOp::AVG, "braid ", kWhat,
                    ": only SUM and AVG are defined, as elements that are not specified count as 0");
  TORCH_CHECK_TYPE(op == ::c10d::ReduceOp::SUM || tensor.is_floating_point() || tensor.is_complex(), "braid ",
                   kWhat, ": AVG needs a floating-point or complex dtype, not ", tensor.scalar_type());
  const WithoutGil without_gil;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor input = tensor.coalesce();
  // The operation shares these, because it goes on after an interrupt.
  const auto own = std::make_shared<const Outline>(outline_of(input));
  const auto all = std::make_shared<std::vector<Outline>>(static_cast<size_t>(size_));
  Operation exchange;
  exchange.kind = CollectiveKind::kAllGather;
  exchange.inputs = {std::as_bytes(std::span(own.get(), 1))};
  exchange.timeout = options.timeout;
  exchange.outputs = equal_blocks(std::as_writable_bytes(std::span(*all)), size_);
  exchange.inline_for = kLookUpEvery;
  wait_for_courier();
  auto exchanged = group().start(std::move(exchange), true);
  raise_if_failed(exchanged.status(), *members_);
  exchanged.value()->on_done([own, all](const Status&) {});
  Interrupts interrupts;
  static_cast<void>(wait_looking_up(*exchanged.value(), kNoDeadline, interrupts.give_up()));
  throw_if_any(interrupts);
  raise_if_failed(exchanged.value()->status(), *members_);
  const Outline& mine = *own;
  const std::vector<Outline>& outlines = *all;
  for (int rank = 0; rank < size_; ++rank) {
    TORCH_CHECK_VALUE(mine.fits(outlines[static_cast<size_t>(rank)]), "braid ", kWhat, ": the tensors of ranks ",
                      rank_, " and ", rank, " differ in shape, dtype or number of sparse dimensions");
  }

  const TensorList indices = room_for(outlines, input._indices(), 1);
  const TensorList values = room_for(outlines, input._values(), 0);
  ::c10d::AllgatherOptions gather;
  gather.timeout = options.timeout;
  start(call_all_gather(place(), indices, input._indices().contiguous(), gather));
  Call call = call_all_gather(place(), values, input._values().contiguous(), gather);
  call.type = ::c10d::OpType::_ALLREDUCE_SPARSE;
  call.name = "all_reduce";
  call.asynchronous = options.asyncOp;
  call.inputs = {tensor};
  // Operations of a group end in the order of their starts. So the indices are there when the values are.
  const int divisor = op == ::c10d::ReduceOp::AVG ? size_ : 1;
  call.tensors.finish_with({tensor}, [=] { add_up(tensor, indices, values, divisor); });
  return start(std::move(call));
}

}  // namespace braid::adapter

// SPDX-License-Identifier: Apache-2.0
#include "c10d/arguments.h"

#include <c10/util/Exception.h>

namespace braid::adapter {
namespace {

bool same(ConstBytes a, ConstBytes b) { return a.data() == b.data() && a.size() == b.size(); }

bool clashes(ConstBytes input, const std::vector<Bytes>& outputs, int in_place) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool allowed = in_place >= 0 && i == static_cast<size_t>(in_place) && same(input, outputs[i]);
    if (!allowed && overlap(input, outputs[i])) return true;
  }
  return false;
}

}  // namespace

const at::Tensor& only(const TensorList& list, const Subject& what) {
  TORCH_CHECK_VALUE(list.size() == 1, "braid ", what.operation, " takes exactly one ", what.part,
                    ", got a list of ", list.size());
  return list.front();
}

const TensorList& only(const std::vector<TensorList>& lists, const Subject& what) {
  TORCH_CHECK_VALUE(lists.size() == 1, "braid ", what.operation, " takes exactly one list of ", what.part,
                    "s, got ", lists.size());
  return lists.front();
}

const TensorList& list_of_root(Place place, int64_t root, const std::vector<TensorList>& lists,
                               const Subject& what) {
  static const TensorList none;
  check_root(place, root, what);
  if (place.rank == root) return only(lists, what);
  TORCH_CHECK_VALUE(lists.empty() || (lists.size() == 1 && lists.front().empty()), "braid ", what.operation,
                    ": only the root, rank ", root, " of the group, may pass a list of ", what.part,
                    "s, but rank ", place.rank, " did");
  return none;
}

const at::Tensor& check_message(Place place, const TensorList& tensors, int peer, int tag, const Subject& what) {
  TORCH_CHECK_VALUE(peer >= 0 && peer < place.size, "braid ", what.operation, ": the peer is rank ", peer,
                    " of the group, but the group has ranks 0 to ", place.size - 1);
  TORCH_CHECK_VALUE(tag >= 0, "braid ", what.operation, ": the tag is ", tag, ", but tags start at 0");
  const at::Tensor& tensor = only(tensors, what);
  check_tensor(tensor, what);
  return tensor;
}

Node check_root(Place place, int64_t root, const Subject& what) {
  TORCH_CHECK_VALUE(root >= 0 && root < place.size, "braid ", what.operation, ": the root is rank ", root,
                    " of the group, but the group has ranks 0 to ", place.size - 1);
  return static_cast<Node>(root);
}

void check_count(Place place, size_t tensors, const Subject& what) {
  TORCH_CHECK_VALUE(tensors == static_cast<size_t>(place.size), "braid ", what.operation, ": the list of ",
                    what.part, "s has ", tensors, " tensors, expected ", place.size,
                    ", one per rank of the group");
}

void check_list(Place place, const TensorList& list, const at::Tensor& own, Subject what) {
  check_count(place, list.size(), what);
  for (const at::Tensor& tensor : list) {
    ++what.index;
    check_tensor(tensor, what);
    check_same_dtype(tensor, own, what);
    if (what.index == place.rank) check_same_shape(tensor, own, what);
  }
}

void check_multiple(Place place, const at::Tensor& whole, const at::Tensor& block, const Subject& what) {
  check_same_dtype(whole, block, what);
  TORCH_CHECK_VALUE(whole.numel() == block.numel() * place.size, "braid ", what, " has ", whole.numel(),
                    " elements, expected ", block.numel() * place.size, ": ", block.numel(), " for each of the ",
                    place.size, " ranks");
}

void set_reduction(Call& call, const at::Tensor& tensor, const ::c10d::ReduceOp& op, const Subject& what) {
  call.operation.op = reduce_op_of(op, what);
  call.operation.dtype = dtype_to_reduce(tensor, call.operation.op, what);
  call.tensors.scale_inputs(factor_of(op, tensor, what));
}

std::vector<Bytes> write_list(Tensors& tensors, const TensorList& outputs, Subject what) {
  std::vector<Bytes> blocks;
  blocks.reserve(outputs.size());
  for (const at::Tensor& tensor : outputs) {
    ++what.index;
    blocks.push_back(tensors.write(tensor, what));
  }
  return blocks;
}

ConstBytes read_beside(Call& call, const at::Tensor& input, int in_place) {
  const ConstBytes bytes = call.tensors.read(input);
  return clashes(bytes, call.operation.outputs, in_place) ? call.tensors.read_copy(input) : bytes;
}

}  // namespace braid::adapter

// SPDX-License-Identifier: Apache-2.0
// A c10d call, ready to start, and helpers to make one. They check lists, roots and shapes, and cut tensors into
// blocks. The functions that make the calls are in calls.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "c10d/tensors.h"
#include "communicator/communicator.h"

namespace braid::adapter {

struct Message {
  uint32_t tag = 0;
  ConstBytes sent;
  Bytes received;
};

// One c10d call, checked and ready to start.
struct Call {
  ::c10d::OpType type = ::c10d::OpType::UNKNOWN;
  const char* name = "";  // the name in profiles and errors
  bool asynchronous = true;
  Operation operation;
  Tensors tensors;
  std::vector<at::Tensor> inputs;  // as the caller passed them, for profiles and records
  int peer = kAnyNode;             // the other rank of a message
  Message message;                 // for a message, in place of the operation
};

// The caller's rank, and the size of its group.
struct Place {
  int rank = 0;
  int size = 1;
};

using TensorList = std::vector<at::Tensor>;

template <class Options>
Call begin_call(::c10d::OpType type, const char* name, CollectiveKind kind, const Options& options) {
  Call call;
  call.type = type;
  call.name = name;
  call.asynchronous = options.asyncOp;
  call.operation.kind = kind;
  if (options.timeout.count() > 0) call.operation.timeout = options.timeout;  // c10d's "unset" is -1
  return call;
}

// The only element of a list. Throws if the list has another length: c10d wraps most arguments in such lists.
const at::Tensor& only(const TensorList& list, const Subject& what);
const TensorList& only(const std::vector<TensorList>& lists, const Subject& what);
// On the root: the inner list. On other ranks: an empty list, because c10d passes none there.
const TensorList& list_of_root(Place place, int64_t root, const std::vector<TensorList>& lists,
                               const Subject& what);

// The tensor of a send() or recv() with this peer and tag. Throws if an argument is wrong.
const at::Tensor& check_message(Place place, const TensorList& tensors, int peer, int tag, const Subject& what);
Node check_root(Place place, int64_t root, const Subject& what);
void check_count(Place place, size_t tensors, const Subject& what);
// Requires one tensor per rank, all with the dtype of `own`. This rank's tensor must also have the shape of `own`.
void check_list(Place place, const TensorList& list, const at::Tensor& own, Subject what);
// Requires that `whole` holds one block per rank, each with as many elements as `block`.
void check_multiple(Place place, const at::Tensor& whole, const at::Tensor& block, const Subject& what);

// Sets the operator, the dtype of the reduction, and the factor of the inputs. Call it before inputs are read.
void set_reduction(Call& call, const at::Tensor& tensor, const ::c10d::ReduceOp& op, const Subject& what);

std::vector<Bytes> write_list(Tensors& tensors, const TensorList& outputs, Subject what);
// The memory of an input, or a copy if it overlaps an output. Operations allow one overlap: the input and
// outputs[in_place] may be exactly the same memory. in_place = -1 allows none.
ConstBytes read_beside(Call& call, const at::Tensor& input, int in_place);

template <class Memory>
std::vector<Memory> equal_blocks(Memory whole, int count) {
  const size_t each = whole.size() / static_cast<size_t>(count);
  std::vector<Memory> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back(whole.subspan(static_cast<size_t>(i) * each, each));
  return blocks;
}

}  // namespace braid::adapter

// SPDX-License-Identifier: Apache-2.0
#include "communicator/explanation.h"

#include <string_view>

#include "base/dtype.h"
#include "communicator/communicator.h"

namespace braid {
namespace {

template <class Kind>
Status unknown(const char* what, const std::string& name, int count) {
  std::string text = "unknown " + std::string(what) + " \"" + name + "\"; there are ";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + std::string(name_of(static_cast<Kind>(i)));
  return {Code::kInvalidArgument, text};
}

}  // namespace

Result<Explanation> explain(Communicator& group, const std::string& collective, const std::string& dtype,
                            const std::string& op, Node root, int64_t bytes) {
  const auto kind = collective_from_name(collective);
  const auto element = dtype_from_name(dtype);
  const auto reduction = reduce_op_from_name(op);
  if (!kind) return unknown<CollectiveKind>("collective", collective, kCollectiveKindCount);
  if (!element) return unknown<DType>("dtype", dtype, kDTypeCount);
  if (!reduction) return unknown<ReduceOp>("reduction", op, kReduceOpCount);
  return group.explain(*kind, *element, *reduction, root, bytes);
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <array>

namespace braid {
namespace {

struct DTypeRow {
  std::string_view name;
  size_t bytes;
};

constexpr std::array<DTypeRow, kDTypeCount> kDTypes = {{
    {"float64", 8},
    {"float32", 4},
    {"float16", 2},
    {"bfloat16", 2},
    {"int8", 1},
    {"int16", 2},
    {"int32", 4},
    {"int64", 8},
    {"uint8", 1},
    {"uint16", 2},
    {"uint32", 4},
    {"uint64", 8},
    {"bool", 1},
}};

constexpr std::array<std::string_view, kReduceOpCount> kReduceOps = {"sum", "avg", "product", "min", "max"};

}  // namespace

size_t size_of(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].bytes; }
std::string_view name_of(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }
std::string_view name_of(ReduceOp op) { return kReduceOps[static_cast<size_t>(op)]; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::optional<ReduceOp> reduce_op_from_name(std::string_view name) {
  for (size_t i = 0; i < kReduceOps.size(); ++i) {
    if (kReduceOps[i] == name) return static_cast<ReduceOp>(i);
  }
  return std::nullopt;
}

}  // namespace braid

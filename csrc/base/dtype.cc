// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <array>

namespace braid {
namespace {

enum class Kind { kReal, kIntegral, kComplex };

struct DTypeRow {
  std::string_view name;
  size_t bytes;
  Kind kind;
};

constexpr std::array<DTypeRow, kDTypeCount> kDTypes = {{
    {"float64", 8, Kind::kReal},
    {"float32", 4, Kind::kReal},
    {"float16", 2, Kind::kReal},
    {"bfloat16", 2, Kind::kReal},
    {"int8", 1, Kind::kIntegral},
    {"int16", 2, Kind::kIntegral},
    {"int32", 4, Kind::kIntegral},
    {"int64", 8, Kind::kIntegral},
    {"uint8", 1, Kind::kIntegral},
    {"uint16", 2, Kind::kIntegral},
    {"uint32", 4, Kind::kIntegral},
    {"uint64", 8, Kind::kIntegral},
    {"bool", 1, Kind::kIntegral},
    {"float8_e4m3fn", 1, Kind::kReal},
    {"float8_e5m2", 1, Kind::kReal},
    {"complex64", 8, Kind::kComplex},
    {"complex128", 16, Kind::kComplex},
}};

constexpr std::array<std::string_view, kReduceOpCount> kReduceOps = {"sum", "avg",  "product", "min",
                                                                     "max", "band", "bor",     "bxor"};

Kind kind_of(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].kind; }

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

bool is_defined(DType dtype, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: return true;
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kMax: return kind_of(dtype) != Kind::kComplex;
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor: return kind_of(dtype) == Kind::kIntegral;
  }
  return false;
}

std::string undefined_text(DType dtype, ReduceOp op) {
  std::string text = std::string(name_of(op)) + " is not defined for " + std::string(name_of(dtype)) + ", only ";
  std::string_view before;
  for (int i = 0; i < kReduceOpCount; ++i) {
    const auto possible = static_cast<ReduceOp>(i);
    if (!is_defined(dtype, possible)) continue;
    text.append(before).append(name_of(possible));
    before = ", ";
  }
  return text;
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// Element types and reduction operators, shared by every layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace braid {

// The values travel in message headers: append only.
enum class DType : uint8_t {
  kFloat64 = 0,
  kFloat32 = 1,
  kFloat16 = 2,
  kBFloat16 = 3,
  kInt8 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kUInt8 = 8,
  kUInt16 = 9,
  kUInt32 = 10,
  kUInt64 = 11,
  kBool = 12,
  kFloat8E4M3Fn = 13,
  kFloat8E5M2 = 14,
  kComplex64 = 15,  // two floats side by side
  kComplex128 = 16,
};
inline constexpr int kDTypeCount = 17;

// The values travel in message headers: append only.
enum class ReduceOp : uint8_t {
  kSum = 0,
  kAvg = 1,
  kProduct = 2,
  kMin = 3,
  kMax = 4,
  kBand = 5,
  kBor = 6,
  kBxor = 7
};
inline constexpr int kReduceOpCount = 8;

size_t size_of(DType dtype);            // bytes per element
std::string_view name_of(DType dtype);  // "float32", ...
std::string_view name_of(ReduceOp op);  // "sum", ...
std::optional<DType> dtype_from_name(std::string_view name);
std::optional<ReduceOp> reduce_op_from_name(std::string_view name);

// True if `op` is defined for `dtype`. Complex numbers have only sums and averages. Bitwise operators are for
// integers and bool. All other operators are for every real dtype. No undefined pair may reach reduce().
bool is_defined(DType dtype, ReduceOp op);
// The error text for an undefined pair; it names the possible operators.
std::string undefined_text(DType dtype, ReduceOp op);

// True for floats of 16 and 8 bits: they are combined in float32 and should be rounded as rarely as possible.
constexpr bool is_narrow_float(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat8E4M3Fn ||
         dtype == DType::kFloat8E5M2;
}

}  // namespace braid

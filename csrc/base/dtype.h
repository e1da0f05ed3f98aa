// SPDX-License-Identifier: Apache-2.0
// Element types and reduction operators, shared by every layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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
};
inline constexpr int kDTypeCount = 13;

// The values travel in message headers: append only.
enum class ReduceOp : uint8_t { kSum = 0, kAvg = 1, kProduct = 2, kMin = 3, kMax = 4 };
inline constexpr int kReduceOpCount = 5;

size_t size_of(DType dtype);            // bytes per element
std::string_view name_of(DType dtype);  // "float32", ...
std::string_view name_of(ReduceOp op);  // "sum", ...
std::optional<DType> dtype_from_name(std::string_view name);
std::optional<ReduceOp> reduce_op_from_name(std::string_view name);

// True for 16-bit floats: their sums accumulate in float32 and should be rounded as rarely as possible.
constexpr bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

}  // namespace braid

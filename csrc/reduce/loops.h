// SPDX-License-Identifier: Apache-2.0
// The operators, the loop over blocks, and the table of all kernels. Included once by each kernels_<instruction
// set>.cc; base/vectors.h has the rules for such files.
#pragma once

#include "reduce/conversions.h"
#include "reduce/float8.h"
#include "reduce/kernels.h"
#include "reduce/lanes.h"

namespace braid {
namespace {

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

struct Sum {
  template <class T>
  static Vector<T> of(Vector<T> a, Vector<T> b) {
    if constexpr (std::is_integral_v<T>) {  // unsigned, to wrap
      using Bits = Vector<std::make_unsigned_t<T>>;
      return (Vector<T>)((Bits)a + (Bits)b);
    } else {
      return a + b;
    }
  }
};
struct Product {
  template <class T>
  static Vector<T> of(Vector<T> a, Vector<T> b) {
    return a * b;
  }
};
struct Or {
  template <class T>
  static Vector<T> of(Vector<T> a, Vector<T> b) {
    return a | b;
  }
};
struct And {
  template <class T>
  static Vector<T> of(Vector<T> a, Vector<T> b) {
    return a & b;
  }
};
struct Xor {
  template <class T>
  static Vector<T> of(Vector<T> a, Vector<T> b) {
    return a ^ b;
  }
};
// For floats, the minimum and maximum of IEEE 754-2019. If a == b, only the sign of a zero can differ; OR or AND
// of the bits picks it.
struct Min {
  template <class T>
  static Vector<T> of(Vector<T> a, Vector<T> b) {
    if constexpr (std::is_floating_point_v<T>) {
      using Bits = Vector<BitsOf<T>>;
      const Vector<T> least = ((b < a) | (b != b)) ? b : a;
      return (a == b) ? (Vector<T>)((Bits)a | (Bits)b) : least;
    } else {
      return (b < a) ? b : a;
    }
  }
};
struct Max {
  template <class T>
  static Vector<T> of(Vector<T> a, Vector<T> b) {
    if constexpr (std::is_floating_point_v<T>) {
      using Bits = Vector<BitsOf<T>>;
      const Vector<T> greatest = ((b > a) | (b != b)) ? b : a;
      return (a == b) ? (Vector<T>)((Bits)a & (Bits)b) : greatest;
    } else {
      return (b > a) ? b : a;
    }
  }
};

// No CPU divides integer vectors. int holds every 8- and 16-bit value, and a wider T any divisor.
template <class T>
[[gnu::noinline]] Vector<T> divided_one_by_one(Vector<T> sum, int divisor) {
  using Wide = std::conditional_t<(sizeof(T) < sizeof(int)), int, T>;
  for (size_t i = 0; i < kLanes<T>; ++i) {
    sum[i] = static_cast<T>(static_cast<Wide>(sum[i]) / static_cast<Wide>(divisor));
  }
  return sum;
}

// Which NaN comes out of NaN + NaN depends on the operand the compiler put first, so all become one.
template <class T, bool kAverage>
Vector<T> finish(Vector<T> value, int divisor) {
  if constexpr (std::is_integral_v<T>) {
    if constexpr (kAverage) value = divided_one_by_one<T>(value, divisor);
  } else {
    if constexpr (kAverage) value /= static_cast<T>(divisor);
    constexpr T kNan = sizeof(T) == 8 ? static_cast<T>(__builtin_nan("")) : static_cast<T>(__builtin_nanf(""));
    value = (value == value) ? value : (Vector<T>{} + kNan);
  }
  return value;
}

template <class Element>
[[gnu::noinline]] Pair<typename Element::Value> load_some(const std::byte* from, size_t count) {
  std::byte padded[Element::kBlock * Element::kElementBytes] = {};
  __builtin_memcpy(padded, from, count * Element::kElementBytes);
  return Element::load(padded);
}
template <class Element>
[[gnu::noinline]] void store_some(std::byte* to, const Pair<typename Element::Value>& block, size_t count) {
  std::byte padded[Element::kBlock * Element::kElementBytes];
  Element::store(padded, block);
  __builtin_memcpy(to, padded, count * Element::kElementBytes);
}

// Reads all sources block by block, and keeps the result in registers until it is stored: one pass for any number
// of sources. There are kSources sources if kSources is not 0, otherwise k. A block is read from every source
// before it is written, so the target may be one of the sources. The rest at the end is padded to a block.
template <class Element, class Op, bool kAverage, size_t kSources>
void combine(std::byte* target, const std::byte* const* sources, size_t k, size_t count, int divisor) {
  using T = typename Element::Value;
  constexpr size_t kSize = Element::kElementBytes;
  const size_t n = kSources != 0 ? kSources : k;
  // A known k keeps the addresses in registers: through `sources`, a write to the target might change them.
  const std::byte* known[kSources + 1];
  for (size_t j = 0; j < kSources; ++j) known[j] = sources[j];
  const std::byte* const* from = kSources != 0 ? known : sources;

  const auto run = [&](auto load, auto store) {
    Pair<T> block = load(from[0]);
    for (size_t j = 1; j < n; ++j) {
      const Pair<T> next = load(from[j]);
      block = {Op::template of<T>(block.first, next.first), Op::template of<T>(block.second, next.second)};
    }
    store(Pair<T>{finish<T, kAverage>(block.first, divisor), finish<T, kAverage>(block.second, divisor)});
  };
  size_t i = 0;
  for (; i + Element::kBlock <= count; i += Element::kBlock) {
    run([&](const std::byte* source) { return Element::load(source + i * kSize); },
        [&](const Pair<T>& block) { Element::store(target + i * kSize, block); });
  }
  if (i < count) {
    run([&](const std::byte* source) { return load_some<Element>(source + i * kSize, count - i); },
        [&](const Pair<T>& block) { store_some<Element>(target + i * kSize, block, count - i); });
  }
}

template <class Element, class Op, bool kAverage>
void dispatch(std::byte* target, const std::byte* const* sources, size_t k, size_t count, int divisor) {
  switch (k) {
    case 2: return combine<Element, Op, kAverage, 2>(target, sources, k, count, divisor);
    case 3: return combine<Element, Op, kAverage, 3>(target, sources, k, count, divisor);
    case 4: return combine<Element, Op, kAverage, 4>(target, sources, k, count, divisor);
    default: return combine<Element, Op, kAverage, 0>(target, sources, k, count, divisor);
  }
}

// Sums, products and bitwise results of integers are computed unsigned: they wrap, with the same bits as signed
// ones.
template <class Element, class Wrapping = Element>
constexpr void fill_row(ReduceKernels& kernels, DType dtype) {
  auto& row = kernels.of[static_cast<size_t>(dtype)];
  row[static_cast<size_t>(ReduceOp::kSum)] = dispatch<Wrapping, Sum, false>;
  row[static_cast<size_t>(ReduceOp::kAvg)] = dispatch<Element, Sum, true>;
  row[static_cast<size_t>(ReduceOp::kProduct)] = dispatch<Wrapping, Product, false>;
  row[static_cast<size_t>(ReduceOp::kMin)] = dispatch<Element, Min, false>;
  row[static_cast<size_t>(ReduceOp::kMax)] = dispatch<Element, Max, false>;
  if constexpr (std::is_integral_v<typename Element::Value>) {
    row[static_cast<size_t>(ReduceOp::kBand)] = dispatch<Wrapping, And, false>;
    row[static_cast<size_t>(ReduceOp::kBor)] = dispatch<Wrapping, Or, false>;
    row[static_cast<size_t>(ReduceOp::kBxor)] = dispatch<Wrapping, Xor, false>;
  }
}

constexpr ReduceKernels all_kernels() {
  ReduceKernels kernels{};
  fill_row<Plain<double>>(kernels, DType::kFloat64);
  fill_row<Plain<float>>(kernels, DType::kFloat32);
  fill_row<Float16>(kernels, DType::kFloat16);
  fill_row<BFloat16>(kernels, DType::kBFloat16);
  fill_row<Float8<E4M3Fn>>(kernels, DType::kFloat8E4M3Fn);
  fill_row<Float8<E5M2>>(kernels, DType::kFloat8E5M2);
  fill_row<Plain<int8_t>, Plain<uint8_t>>(kernels, DType::kInt8);
  fill_row<Plain<int16_t>, Plain<uint16_t>>(kernels, DType::kInt16);
  fill_row<Plain<int32_t>, Plain<uint32_t>>(kernels, DType::kInt32);
  fill_row<Plain<int64_t>, Plain<uint64_t>>(kernels, DType::kInt64);
  fill_row<Plain<uint8_t>>(kernels, DType::kUInt8);
  fill_row<Plain<uint16_t>>(kernels, DType::kUInt16);
  fill_row<Plain<uint32_t>>(kernels, DType::kUInt32);
  fill_row<Plain<uint64_t>>(kernels, DType::kUInt64);
  auto& of_bool = kernels.of[static_cast<size_t>(DType::kBool)];
  of_bool[static_cast<size_t>(ReduceOp::kSum)] = dispatch<Bool, Or, false>;
  of_bool[static_cast<size_t>(ReduceOp::kAvg)] = dispatch<Bool, Or, false>;
  of_bool[static_cast<size_t>(ReduceOp::kProduct)] = dispatch<Bool, And, false>;
  of_bool[static_cast<size_t>(ReduceOp::kMin)] = dispatch<Bool, And, false>;
  of_bool[static_cast<size_t>(ReduceOp::kMax)] = dispatch<Bool, Or, false>;
  of_bool[static_cast<size_t>(ReduceOp::kBand)] = dispatch<Bool, And, false>;
  of_bool[static_cast<size_t>(ReduceOp::kBor)] = dispatch<Bool, Or, false>;
  of_bool[static_cast<size_t>(ReduceOp::kBxor)] = dispatch<Bool, Xor, false>;
  fill_conversions(kernels);
  return kernels;
}

}  // namespace
}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// Vector registers in the compiler's own types, so that the same source serves every width.
//
// Included once by each kernels_<instruction set>.cc, which defines BRAID_VECTOR_BYTES. Everything is in the
// anonymous namespace and nothing calls an inline function of the standard library: the linker must not keep code
// for a wide CPU as the only copy for all CPUs.
#pragma once

#include <cstddef>

namespace braid {
namespace {

template <class T>
constexpr size_t kLanes = BRAID_VECTOR_BYTES / sizeof(T);
template <class T, size_t kElements = kLanes<T>>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kElements * sizeof(T))));
};
template <class T>
using Vector = typename VectorOf<T>::Type;

template <class V>
V load_vector(const std::byte* from) {
  V vector;
  __builtin_memcpy(&vector, from, sizeof(V));  // any alignment, any type
  return vector;
}
template <class V>
void store_vector(std::byte* to, V vector) {
  __builtin_memcpy(to, &vector, sizeof(V));
}

}  // namespace
}  // namespace braid

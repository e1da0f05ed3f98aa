// SPDX-License-Identifier: Apache-2.0
// Tensors in the device's memory, taken as one run of elements.
#pragma once

#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/span.h"
#include "base/status.h"
#include "cuda/job.h"

namespace braid::cuda {

struct DeviceRun {
  void* address = nullptr;
  size_t elements = 0;
  DType dtype = DType::kFloat32;
};

class Table {
 public:
  // kInvalidArgument for what is neither float32, float16 nor bfloat16, or lies at no multiple of its size.
  static Result<Table> of(std::span<const DeviceRun> runs);

  size_t elements() const { return rows_.back().begin; }
  // A table of more than kInlineRows must be in the device's memory before it is used: these bytes, there.
  bool is_long() const { return rows_.size() > kInlineRows + 1; }
  ConstBytes rows() const { return std::as_bytes(std::span(rows_)); }
  void set_far_rows(const void* address) { far_rows_ = static_cast<const Row*>(address); }

  // kInvalidArgument for a long table without far rows.
  Status write_to(Job& job) const;

 private:
  std::vector<Row> rows_;
  const Row* far_rows_ = nullptr;
};

}  // namespace braid::cuda

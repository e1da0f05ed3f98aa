// SPDX-License-Identifier: Apache-2.0
#include "cuda/table.h"

#include <algorithm>
#include <optional>
#include <string>

namespace braid::cuda {
namespace {

std::optional<Element> element_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return Element::kFloat32;
    case DType::kFloat16: return Element::kFloat16;
    case DType::kBFloat16: return Element::kBFloat16;
    default: return std::nullopt;
  }
}

}  // namespace

Result<Table> Table::of(std::span<const DeviceRun> runs) {
  Table table;
  uint64_t begin = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    const DeviceRun& run = runs[i];
    const auto wrong = [&](const std::string& what) {
      return Status(Code::kInvalidArgument, "tensor " + std::to_string(i) + " " + what);
    };
    const auto element = element_of(run.dtype);
    if (!element) {
      return wrong("is of " + std::string(name_of(run.dtype)) + ", not of float32, float16 or bfloat16");
    }
    const auto address = reinterpret_cast<uint64_t>(run.address);
    if (address % size_of(run.dtype) != 0) return wrong("lies at no multiple of its elements' size");
    if (run.elements == 0) continue;
    if (address == 0) return wrong("has elements, but no memory");
    table.rows_.push_back({.address = address, .begin = begin, .element = *element});
    begin += run.elements;
  }
  table.rows_.push_back({.begin = begin});
  return table;
}

Status Table::write_to(Job& job) const {
  job.elements = elements();
  job.row_count = static_cast<uint32_t>(rows_.size() - 1);
  if (is_long()) {
    if (far_rows_ == nullptr) {
      return {Code::kInvalidArgument, "a table of " + std::to_string(job.row_count) +
                                          " tensors must be copied to the device before it is used"};
    }
    job.far_rows = far_rows_;
  } else {
    std::copy(rows_.begin(), rows_.end(), job.rows);
  }
  return {};
}

}  // namespace braid::cuda

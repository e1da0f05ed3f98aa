// SPDX-License-Identifier: Apache-2.0
#include "low_rank/rounded.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/float_environment.h"
#include "low_rank/kernels.h"
#include "reduce/convert.h"

namespace braid {
namespace {

constexpr size_t kBlockElements = 1 << 14;  // as floats, they stay in a second-level cache during another pass
constexpr size_t kLeastRows = 4;            // rows that the kernels process together

// Cuts rows into blocks, each of which is a matrix of its own. The bits do not depend on the cut.
class Blocks {
 public:
  Blocks(const LowRankShape& shape, LowRankRange rows)
      : shape_(shape),
        rows_(rows),
        most_(std::max(kLeastRows, kBlockElements / std::max<size_t>(shape.columns, 1))),
        p_(std::min(most_, rows.end - rows.begin) * shape.rank) {}

  size_t most_elements() const { return std::min(most_, rows_.end - rows_.begin) * shape_.columns; }

  // Calls call(shape, first row, first element) for each block.
  template <class Call>
  void each(const Call& call) {
    for (size_t row = rows_.begin; row < rows_.end; row += most_) {
      const size_t count = std::min(most_, rows_.end - row);
      call(LowRankShape{count, shape_.columns, shape_.rank}, row, row * shape_.columns);
    }
  }

  // A P of the block alone: to be filled, or with what the whole one has there.
  float* own_p() { return p_.data(); }
  const float* own_p(const float* p, size_t row, size_t count) {
    for (size_t k = 0; k < shape_.rank; ++k) std::copy_n(p + k * shape_.rows + row, count, &p_[k * count]);
    return p_.data();
  }
  void put_p(float* p, size_t row, size_t count) const {
    for (size_t k = 0; k < shape_.rank; ++k) std::copy_n(&p_[k * count], count, p + k * shape_.rows + row);
  }

 private:
  const LowRankShape& shape_;
  const LowRankRange rows_;
  const size_t most_;
  std::vector<float> p_;
};

// Subtracts from a block the rounded product that rebuild() writes for it on all ranks.
class Subtraction {
 public:
  Subtraction(DType dtype, size_t most_elements)
      : dtype_(dtype), product_(most_elements), given_(most_elements * size_of(dtype)) {}

  void from(float* matrix, const LowRankShape& block, const float* p, const float* q) {
    const size_t n = block.rows * block.columns;
    low_rank_kernels().rebuild(block, p, q, {0, block.rows}, product_.data());
    from_floats(dtype_, product_.data(), n, 1, given_.data());
    to_floats(dtype_, given_.data(), n, 1, product_.data());
    for (size_t i = 0; i < n; ++i) {
      const float left = matrix[i] - product_[i];
      matrix[i] = std::abs(product_[i]) <= kMost ? left : 0.0f;
    }
  }

 private:
  static constexpr float kMost = 0x1.fffffep127f;

  const DType dtype_;
  std::vector<float> product_;
  std::vector<std::byte> given_;
};

}  // namespace

void low_rank_project_rounded(DType dtype, const LowRankShape& shape, const std::byte* gradient, float* matrix,
                              const float* sent, const float* q, LowRankRange rows, float* p) {
  const PlainFloats plain;
  Blocks blocks(shape, rows);
  Subtraction subtraction(dtype, sent == nullptr ? 0 : blocks.most_elements());
  std::vector<float> wide(blocks.most_elements());
  blocks.each([&](const LowRankShape& block, size_t row, size_t at) {
    if (sent != nullptr) subtraction.from(matrix + at, block, blocks.own_p(sent, row, block.rows), q);
    to_floats(dtype, gradient + at * size_of(dtype), block.rows * block.columns, 1, wide.data());
    low_rank_kernels().project(block, wide.data(), matrix + at, nullptr, q, {0, block.rows}, blocks.own_p());
    blocks.put_p(p, row, block.rows);
  });
}

void low_rank_rebuild_rounded(DType dtype, const LowRankShape& shape, const float* p, const float* q,
                              LowRankRange rows, std::byte* product) {
  const PlainFloats plain;
  Blocks blocks(shape, rows);
  std::vector<float> wide(blocks.most_elements());
  blocks.each([&](const LowRankShape& block, size_t row, size_t at) {
    low_rank_kernels().rebuild(block, blocks.own_p(p, row, block.rows), q, {0, block.rows}, wide.data());
    from_floats(dtype, wide.data(), block.rows * block.columns, 1, product + at * size_of(dtype));
  });
}

void low_rank_settle_rounded(DType dtype, const LowRankShape& shape, const float* p, const float* q,
                             LowRankRange rows, float* matrix) {
  const PlainFloats plain;
  Blocks blocks(shape, rows);
  Subtraction subtraction(dtype, blocks.most_elements());
  blocks.each([&](const LowRankShape& block, size_t row, size_t at) {
    subtraction.from(matrix + at, block, blocks.own_p(p, row, block.rows), q);
  });
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// One rank's memory for one collective, and what plain loops say must be in it afterwards.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/span.h"
#include "schedule/collective.h"

namespace braid::testing {

// Memory of unsigned 32-bit integers: sums are exact, and wrap.
class Blocks {
 public:
  // `count` elements per vector or block; blocks are a little longer here and there, unless count is 0. In place
  // where the collective allows it.
  Blocks(const Collective& collective, Node rank, size_t count, bool in_place, uint32_t seed = 0)
      : collective_(collective), rank_(rank), count_(count), in_place_(in_place), seed_(seed) {
    const int chunks = is_vector(collective.kind) ? 1 : collective.ranks;
    for (int k = 0; k < input_chunks(collective, chunks, rank); ++k) in_.push_back(input(rank, k));
    for (int k = 0; k < output_chunks(collective, chunks, rank); ++k) {
      out_.emplace_back(expected(k).size(), 0xdeadbeef);
    }
    for (size_t i = 0; i < in_.size(); ++i) {
      for (size_t o = 0; o < out_.size(); ++o) {
        if (shared(i, o)) out_[o] = in_[i];
      }
    }
  }

  std::vector<ConstBytes> inputs() {
    std::vector<ConstBytes> blocks;
    for (size_t i = 0; i < in_.size(); ++i) {
      std::vector<uint32_t>* memory = &in_[i];
      for (size_t o = 0; o < out_.size(); ++o) {
        if (shared(i, o)) memory = &out_[o];
      }
      blocks.push_back(std::as_bytes(std::span(*memory)));
    }
    return blocks;
  }

  std::vector<Bytes> outputs() {
    std::vector<Bytes> blocks;
    for (auto& block : out_) blocks.push_back(std::as_writable_bytes(std::span(block)));
    return blocks;
  }

  ::testing::AssertionResult right() const {
    for (size_t k = 0; k < out_.size(); ++k) {
      const std::vector<uint32_t> wanted = expected(static_cast<int>(k));
      for (size_t e = 0; e < wanted.size(); ++e) {
        if (out_[k][e] == wanted[e]) continue;
        return ::testing::AssertionFailure() << what() << ": output " << k << " element " << e << " of "
                                             << wanted.size() << " is " << out_[k][e] << ", not " << wanted[e];
      }
    }
    for (size_t k = 0; k < in_.size(); ++k) {  // what is shared lives in out_
      if (in_[k] != input(rank_, static_cast<int>(k))) {
        return ::testing::AssertionFailure() << what() << ": input " << k << " was changed";
      }
    }
    return ::testing::AssertionSuccess();
  }

 private:
  std::string what() const {
    return std::string(name_of(collective_.kind)) + " of " + std::to_string(count_) + " on rank " +
           std::to_string(rank_) + " of " + std::to_string(collective_.ranks) + (in_place_ ? " in place" : "");
  }

  bool shared(size_t i, size_t o) const {
    const auto own = static_cast<size_t>(rank_);
    switch (collective_.kind) {
      case CollectiveKind::kAllGather:
      case CollectiveKind::kGather: return in_place_ && o == own;
      case CollectiveKind::kReduceScatter:
      case CollectiveKind::kScatter: return in_place_ && i == own;
      case CollectiveKind::kAllToAll: return false;
      default: return in_place_;
    }
  }

  // What `rank` contributes to chunk `chunk`; in all_to_all what it sends to rank `chunk`.
  std::vector<uint32_t> contribution(Node rank, int chunk) const {
    size_t size = count_;
    if (count_ > 0 && collective_.kind == CollectiveKind::kAllToAll) {
      size += static_cast<size_t>((3 * rank + 5 * chunk) % 4);
    } else if (count_ > 0 && !is_vector(collective_.kind)) {
      size += static_cast<size_t>((chunk * 7 + 2) % 3);
    }
    std::vector<uint32_t> values(size);
    const uint32_t start =
        seed_ * 2654435761u + static_cast<uint32_t>(rank) * 40503u + static_cast<uint32_t>(chunk);
    for (size_t e = 0; e < size; ++e) values[e] = (start + static_cast<uint32_t>(e)) * 2246822519u;
    return values;
  }

  std::vector<uint32_t> input(Node node, int chunk) const {
    const bool one = collective_.kind == CollectiveKind::kAllGather || collective_.kind == CollectiveKind::kGather;
    return contribution(node, one ? node : chunk);
  }

  std::vector<uint32_t> expected(int chunk) const {
    switch (collective_.kind) {
      case CollectiveKind::kBroadcast: return contribution(collective_.root, chunk);
      case CollectiveKind::kScatter: return contribution(collective_.root, rank_);
      case CollectiveKind::kAllGather:
      case CollectiveKind::kGather: return contribution(chunk, chunk);
      case CollectiveKind::kAllToAll: return contribution(chunk, rank_);
      default: break;
    }
    const int block = collective_.kind == CollectiveKind::kReduceScatter ? rank_ : chunk;
    std::vector<uint32_t> total = contribution(0, block);
    for (Node rank = 1; rank < collective_.ranks; ++rank) {
      const std::vector<uint32_t> more = contribution(rank, block);
      for (size_t e = 0; e < total.size(); ++e) total[e] += more[e];
    }
    return total;
  }

  const Collective collective_;
  const Node rank_;
  const size_t count_;
  const bool in_place_;
  const uint32_t seed_;
  std::vector<std::vector<uint32_t>> in_, out_;
};

}  // namespace braid::testing

// SPDX-License-Identifier: Apache-2.0
// The content of a chunk as an expression over the ranks' inputs. Each expression is kept once, so equal
// expressions have equal ids, and "computed the same way" is a comparison of integers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "verify/memory.h"

namespace braid {

class Expressions {
 public:
  using Id = int32_t;

  explicit Expressions(int ranks);
  Expressions(const Expressions&) = delete;
  Expressions& operator=(const Expressions&) = delete;

  // The contribution of `rank` to `block`.
  Id leaf(Node rank, Block block);
  // The operands combined in this order. The order of two operands does not matter, because addition commutes.
  // Returns nothing if a rank would be counted twice. REQUIRES: all operands have the same block.
  std::optional<Id> combine(std::span<const Id> operands);

  Block block(Id id) const { return entries_[id].block; }
  bool is_complete(Id id) const;           // true if every rank contributes
  std::string contributors(Id id) const;   // "r0, r3"
  std::string missing_ranks(Id id) const;  // the ranks that do not contribute

 private:
  struct Entry {
    Block block = 0;
    size_t first_operand = 0;
    size_t operand_count = 0;
  };
  std::span<const Id> operands_of(Id id) const {
    return {operands_.data() + entries_[id].first_operand, entries_[id].operand_count};
  }
  Id append(Block block);
  std::string list_ranks(Id id, bool contributing) const;

  int ranks_;
  size_t words_;                       // 64-bit words of one set of contributors
  std::vector<Entry> entries_;         // by id
  std::vector<uint64_t> contributed_;  // words_ per id: the set of contributors
  std::vector<Id> operands_;           // of all combinations, one after the other
  std::unordered_map<int64_t, Id> leaves_;

  struct Hash {
    const Expressions* owner;
    size_t operator()(Id id) const;
  };
  struct Equal {
    const Expressions* owner;
    bool operator()(Id a, Id b) const;
  };
  std::unordered_set<Id, Hash, Equal> combinations_;
};

}  // namespace braid

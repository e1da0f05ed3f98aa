// SPDX-License-Identifier: Apache-2.0
// For which operations a local leg pays: see python/braid/_torch/leg_costs.py, which makes the table.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace braid::adapter {

// What the cost model says of operations of up to so many bytes.
struct LegRow {
  int64_t up_to_bytes = 0;
  double flat_s = 0;  // without the leg
  double leg_s = 0;
};

class LegTable {
 public:
  LegTable() = default;  // the leg is used at every size
  // By the operation, as "all_reduce". The last row of each stands for larger sizes, too.
  explicit LegTable(std::map<std::string, std::vector<LegRow>> rows) : rows_(std::move(rows)) {}

  // The same on all ranks, if the table and the bytes are. `bytes`: of the vector, or of all blocks together.
  bool pays(const std::string& operation, int64_t bytes) const;
  // "the cost model says 12 us with it, 40 us without it"; "" if it is used at every size.
  std::string in_words(const std::string& operation, int64_t bytes) const;

 private:
  const LegRow* find(const std::string& operation, int64_t bytes) const;

  std::map<std::string, std::vector<LegRow>> rows_;
};

}  // namespace braid::adapter

// SPDX-License-Identifier: Apache-2.0
// A shard: a part of the packed vector of parameters, as a server holds it. Values are float32. With relaxed
// consistency they lie in memory that workers of the same host map.
//
// Thread safety: none; the server's mutex guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "parameters/call.h"
#include "parameters/mapped_shard.h"
#include "rules/rule.h"

namespace braid {

// Memory for floats that is not written before it is used.
using Floats = std::unique_ptr<float[]>;
inline Floats make_floats(size_t count) { return Floats(new float[count == 0 ? 1 : count]); }

class Shard {
 public:
  // Elements [begin, begin + count) of the vector.
  Shard(size_t begin, size_t count, const ShardRule& rule, bool is_mapped);

  size_t begin() const { return begin_; }
  size_t count() const { return count_; }
  bool is_installed() const { return values() != nullptr; }
  uint64_t version() const { return mapped_ ? mapped_->version() : version_; }
  uint64_t steps() const { return mapped_ ? mapped_->steps() : steps_; }
  // How often the values began anew: a worker that got some before has to do with others.
  uint64_t beginning() const { return beginning_; }
  const float* values() const { return mapped_ ? mapped_->values() : values_.get(); }
  // Null, unless the values are in mapped memory.
  MappedShard* mapped() const { return mapped_.get(); }

  // kInvalidArgument if the rule refuses numbers of the table, or if it does not cover the shard.
  Status check(std::span<const RangeNumbers> table) const;
  // Sets the values; the rule's state begins anew. An error if there is no memory to map.
  Status install(const float* values, uint64_t version);
  // Applies the update and returns its staleness. If check() fails, nothing was applied. REQUIRES: is_installed().
  Result<uint32_t> apply(const Update& update);
  // values -= scale * update, without the rule: its state and steps() stay. The version rises.
  // REQUIRES: is_installed(), and values that are not mapped.
  void subtract(const float* update, float scale);
  // Copies the values for a worker. REQUIRES: is_installed().
  void read(int worker, float* into);
  // Notes that the worker has got the present values in another way.
  void has_read(int worker);
  void forget(int worker) { backups_.erase(worker); }
  // The values and then each vector of the state. `into` and `from` have count() * (1 + state_vectors) numbers.
  void snapshot(float* into) const;
  Status restore(const float* from, uint64_t steps, uint64_t version);
  // The vectors of the state alone. REQUIRES: is_installed(), and not mapped.
  void set_state(const float* vectors, uint64_t steps);

  // Mapped values: workers may change them no more by themselves, or may again.
  void give_up(bool is_given_up) {
    if (mapped_) mapped_->give_up(is_given_up);
  }

  // By staleness; the last entry counts all that are staler.
  std::vector<uint64_t> staleness() const { return mapped_ ? mapped_->staleness() : staleness_; }
  // Bytes of memory: values, state and copies.
  size_t bytes() const;

 private:
  const size_t begin_;
  const size_t count_;
  const ShardRule rule_;
  const int state_vectors_;
  const bool is_mapped_;
  std::unique_ptr<MappedShard> mapped_;
  Floats values_;
  std::vector<Floats> state_;
  std::map<int, Floats> backups_;  // DC-ASGD: the values that each worker read last
  uint64_t version_ = 0;
  uint64_t steps_ = 0;
  uint64_t beginning_ = 0;
  std::vector<uint64_t> staleness_;
};

}  // namespace braid

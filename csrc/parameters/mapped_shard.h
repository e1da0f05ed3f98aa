// SPDX-License-Identifier: Apache-2.0
// A shard in memory that all processes of a host share (Hogwild, Niu et al. 2011; You et al. 2017). Whoever maps it
// adds to the values and reads them, without a lock and without a message. Two that add to an element at the same
// time may lose one of the updates; a reader may see a part of an update. No value is torn: a float is written whole.
//
// Thread safety: all functions may be called from any thread of any process.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "memory/segment.h"
#include "parameters/call.h"
#include "rules/rule.h"

namespace braid {

inline constexpr size_t kStalenessRows = 65;  // of a histogram; the last one counts all that are staler
inline constexpr size_t kMapTextBytes = 256;  // of the answer to a kMap call: a handle, then zeros

// How a service changes its shards.
struct ShardRule {
  RuleSpec rule;
  bool divides_by_staleness = false;
};

// An update of a shard by one worker.
struct Update {
  int worker = -1;  // -1: of all workers together
  const float* update = nullptr;
  float* result = nullptr;  // see RuleMemory; may be the memory of the update
  std::span<const RangeNumbers> table;
  float scale = 1;
  uint64_t base = 0;
};

class MappedShard {
 public:
  // Elements [begin, begin + count) of the vector. A new one has zeros. kSystem if there is no memory.
  static Result<std::unique_ptr<MappedShard>> create(size_t begin, size_t count, const ShardRule& rule);
  // One that another process made, or this one. kMismatch if it has another size.
  static Result<std::unique_ptr<MappedShard>> attach(std::string_view handle, size_t begin, size_t count,
                                                     const ShardRule& rule);
  ~MappedShard();  // the one that create() made gives up
  MappedShard(const MappedShard&) = delete;
  MappedShard& operator=(const MappedShard&) = delete;

  const std::string& handle() const { return segment_.handle(); }
  float* values() const { return values_; }
  size_t bytes() const { return segment_.size(); }
  // The server has given it up: what is added now is lost. It may take that back.
  bool is_given_up() const;
  void give_up(bool is_given_up = true);

  struct Applied {
    uint32_t staleness = 0;
    uint64_t version = 0;
  };
  // Applies the update. If its table does not fit, nothing is applied.
  Result<Applied> apply(const Update& update);
  // Copies the values; the number of updates that they have at least.
  uint64_t read(float* into) const;
  // Sets the values. What others add meanwhile may be lost.
  void install(const float* values, uint64_t version, uint64_t steps);

  uint64_t version() const;
  uint64_t steps() const;    // since the values began
  uint64_t updates() const;  // of all times
  std::vector<uint64_t> staleness() const;

 private:
  struct Header {
    uint64_t count = 0;
    std::atomic<uint32_t> is_given_up{0};
    std::atomic<uint64_t> version{0};
    std::atomic<uint64_t> steps{0};
    std::atomic<uint64_t> updates{0};
    std::array<std::atomic<uint64_t>, kStalenessRows> staleness{};
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  static constexpr size_t kValuesAt = 1024;
  static_assert(Segment::kReservedBytes + sizeof(Header) <= kValuesAt);

  MappedShard(Segment segment, size_t begin, size_t count, const ShardRule& rule, bool is_ours);

  Segment segment_;
  const size_t begin_;
  const size_t count_;
  const ShardRule rule_;
  const bool is_ours_;
  Header* const header_;
  float* const values_;
};

}  // namespace braid

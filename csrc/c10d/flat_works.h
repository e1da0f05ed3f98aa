// SPDX-License-Identifier: Apache-2.0
// Collectives on CPU tensors that are under way without the local leg. The leg comes after those that it touches.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "base/span.h"

namespace braid::adapter {

// Where tensors lie.
class Reach {
 public:
  Reach(const std::vector<at::Tensor>& read, const std::vector<at::Tensor>& written);
  // True if the order of the two matters: one writes what the other reads or writes.
  bool meets(const Reach& other) const;
  bool is_written(ConstBytes extent) const { return meets_any(extent, written_); }
  bool is_touched(ConstBytes extent) const { return is_written(extent) || meets_any(extent, read_); }

 private:
  static bool meets_any(ConstBytes extent, const std::vector<ConstBytes>& others);

  std::vector<ConstBytes> read_;
  std::vector<ConstBytes> written_;
};

// Thread safe.
class FlatWorks {
 public:
  using Work = c10::intrusive_ptr<::c10d::Work>;

  // A name for add() and remove().
  uint64_t next_id() { return next_++; }
  // Keeps the work until remove().
  void add(uint64_t id, Work work, Reach reach);
  void remove(uint64_t id);
  std::vector<Work> that_meet(const Reach& reach) const;

 private:
  struct Entry {
    Work work;
    Reach reach;
  };
  mutable std::mutex mutex_;
  std::map<uint64_t, Entry> entries_;
  std::atomic<uint64_t> next_{0};
};

}  // namespace braid::adapter

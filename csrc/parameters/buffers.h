// SPDX-License-Identifier: Apache-2.0
// Memory for the bodies of large calls at a server: so many buffers, first come, first served. Those that come back are
// kept for the next calls, or freed.
//
// Thread safety: none; the server's mutex guards it.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <vector>

#include "parameters/shard.h"
#include "transport/doorbell.h"

namespace braid {

struct Job;

class Buffers {
 public:
  // How many buffers must be free before this job may have one; more than there are if it has to wait for something
  // else. It is asked again whenever a buffer could be given.
  using Needs = std::function<int(const Job&)>;
  // `bell` is rung when a job that has asked in vain should ask again.
  enum class Spares : bool { kFreed, kKept };
  Buffers(int count, Spares spares, Needs needs, DoorbellWord& bell);

  // Set once, before the first take(): numbers in a buffer.
  void set_size(size_t numbers) { size_ = numbers; }
  size_t size() const { return size_; }

  // A buffer, or null. A job that gets none keeps its place in the queue: later ones get no buffer that it could have.
  Floats take(const Job& job);
  // Null is no buffer.
  void give_back(Floats buffer);
  // The job asks no more.
  void forget(const Job& job) { queue_.remove(&job); }
  // What the jobs wait for may have changed.
  void look_again() const {
    if (!queue_.empty()) ring(bell_);
  }

  int free() const { return count_ - out_; }
  size_t bytes() const { return (spare_.size() + static_cast<size_t>(out_)) * size_ * sizeof(float); }

 private:
  const int count_;
  const Spares spares_;
  const Needs needs_;
  DoorbellWord& bell_;
  size_t size_ = 0;
  int out_ = 0;
  std::vector<Floats> spare_;
  std::list<const Job*> queue_;
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// Enough of CUDA to run the very text of the kernels on the host: one block after the other, each of its threads a
// coroutine that runs until it waits for its warp or its block. One thread of the host, so that a run is repeatable;
// what this cannot show is a missing barrier between warps that the order here hides, and what nvcc makes of the text.
// To be included before csrc/cuda/kernels.cu, in one file of a program.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

namespace cuda_on_host {

struct Index {
  uint32_t x = 0;
};

// The threads that wait for each other: a warp or a block. The last to arrive lets all go on.
struct Barrier {
  uint32_t expected = 0, arrived = 0, turn = 0;
};

class Block {
 public:
  explicit Block(uint32_t threads) : threads_(threads), warps_((threads + 31) / 32) {
    for (Thread& thread : threads_) thread.stack.reset(new char[kStackBytes]);
  }

  // Runs all threads of one block to their ends, in the order of their indices or against it.
  void run(std::function<void()> body, bool backwards) {
    body_ = std::move(body);
    block_ = {.expected = static_cast<uint32_t>(threads_.size())};
    for (Warp& warp : warps_) warp = {};
    for (size_t i = 0; i < threads_.size(); ++i) start(i);
    running_ = threads_.size();
    for (size_t turn = 0; running_ > 0; turn = (turn + 1) % threads_.size()) {
      const size_t i = backwards ? threads_.size() - 1 - turn : turn;
      if (threads_[i].done) continue;
      current_ = i;
      swapcontext(&scheduler_, &threads_[i].context);
    }
  }

  uint32_t thread() const { return static_cast<uint32_t>(current_); }
  void wait_for_block() { wait_at(block_); }

  // What the 32 lanes of the caller's warp gave; valid until the next exchange of the warp.
  const uint32_t* exchange(uint32_t given) {
    Warp& warp = warps_[current_ / 32];
    uint32_t* values = warp.values[warp.barrier.turn % 2];
    values[current_ % 32] = given;
    wait_at(warp.barrier);
    return values;
  }

 private:
  static constexpr size_t kStackBytes = 256 * 1024;

  struct Thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    bool done = false;
  };
  struct Warp {
    Barrier barrier{.expected = 32};
    uint32_t values[2][32] = {};
  };

  void start(size_t i) {
    Thread& thread = threads_[i];
    thread.done = false;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = kStackBytes;
    thread.context.uc_link = &scheduler_;
    const auto self = reinterpret_cast<uintptr_t>(this);
    makecontext(&thread.context, reinterpret_cast<void (*)()>(&Block::enter), 2, static_cast<uint32_t>(self),
                static_cast<uint32_t>(self >> 32));
  }
  static void enter(uint32_t low, uint32_t high) {
    auto* block = reinterpret_cast<Block*>(uintptr_t{high} << 32 | low);
    block->body_();
    block->threads_[block->current_].done = true;
    --block->running_;
  }

  void wait_at(Barrier& barrier) {
    const uint32_t turn = barrier.turn;
    if (++barrier.arrived == barrier.expected) {
      barrier.arrived = 0;
      ++barrier.turn;
      return;
    }
    const size_t self = current_;
    while (barrier.turn == turn) swapcontext(&threads_[self].context, &scheduler_);
  }

  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::function<void()> body_;
  Barrier block_;
  ucontext_t scheduler_;
  size_t current_ = 0, running_ = 0;
};

inline Block* block = nullptr;
inline Index block_index, grid_size;

template <class Argument>
void launch(void (*kernel)(Argument), uint32_t blocks, uint32_t threads, const Argument& argument) {
  static Block only(threads);
  block = &only;
  grid_size.x = blocks;
  for (block_index.x = 0; block_index.x < blocks; ++block_index.x) {
    only.run([&] { kernel(argument); }, block_index.x % 2 != 0);
  }
}

struct ThreadIndex {
  struct X {
    operator uint32_t() const { return block->thread(); }
  } x;
};

template <class T>
T shuffled(T value, uint32_t lane) {
  return std::bit_cast<T>(block->exchange(std::bit_cast<uint32_t>(value))[lane % 32]);
}

}  // namespace cuda_on_host

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static  // blocks run one after the other
#define __grid_constant__
#define __launch_bounds__(...)

static const cuda_on_host::ThreadIndex threadIdx;
static const cuda_on_host::Index& blockIdx = cuda_on_host::block_index;
static const cuda_on_host::Index& gridDim = cuda_on_host::grid_size;

inline void __syncthreads() { cuda_on_host::block->wait_for_block(); }
inline void __threadfence() {}
template <class T>
T __shfl_sync(uint32_t, T value, uint32_t lane) {
  return cuda_on_host::shuffled(value, lane);
}
template <class T>
T __shfl_xor_sync(uint32_t, T value, uint32_t mask) {
  return cuda_on_host::shuffled(value, (threadIdx.x % 32) ^ mask);
}
template <class T>
T __shfl_down_sync(uint32_t, T value, uint32_t step) {
  const uint32_t lane = threadIdx.x % 32;
  return cuda_on_host::shuffled(value, lane + step < 32 ? lane + step : lane);
}
template <class T>
T __shfl_up_sync(uint32_t, T value, uint32_t step) {
  const uint32_t lane = threadIdx.x % 32;
  return cuda_on_host::shuffled(value, lane >= step ? lane - step : lane);
}
inline uint32_t __reduce_max_sync(uint32_t, uint32_t value) {
  const uint32_t* values = cuda_on_host::block->exchange(value);
  return *std::max_element(values, values + 32);
}
inline uint32_t __ballot_sync(uint32_t, bool vote) {
  const uint32_t* values = cuda_on_host::block->exchange(vote ? 1 : 0);
  uint32_t bits = 0;
  for (uint32_t lane = 0; lane < 32; ++lane) bits |= values[lane] << lane;
  return bits;
}
inline int __popc(uint32_t bits) { return std::popcount(bits); }
inline uint32_t atomicAdd(uint32_t* at, uint32_t value) {
  const uint32_t old = *at;
  *at += value;
  return old;
}
inline uint32_t __ldcg(const uint32_t* at) { return *at; }

// SPDX-License-Identifier: Apache-2.0
#include "core/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace simulator {
namespace {

constexpr size_t kLeastBytes = 512;

size_t size_class(size_t bytes) { return std::bit_ceil(std::max(bytes, kLeastBytes)); }

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::abort();
}

std::byte* mapped(int file, size_t bytes, int protection) {
  void* const place = ::mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (place == MAP_FAILED) give_up("the simulator cannot map its memory");
  return static_cast<std::byte*>(place);
}

}  // namespace

void poison(void* begin, size_t bytes) { std::memset(begin, kPoison, bytes); }

Blocks::Blocks(Access access) {
  const int file = ::memfd_create("simulator", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, kBytes) != 0) give_up("the simulator gets no memory");
  alias_ = mapped(file, kBytes, PROT_READ | PROT_WRITE);
  begin_ = access == Access::kHost ? alias_ : mapped(file, kBytes, PROT_NONE);
  ::close(file);
}

std::pair<std::byte*, bool> Blocks::take(size_t bytes, int64_t owner) {
  const size_t whole = size_class(bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& freed = freed_[{owner, whole}];
  const bool used = !freed.empty();
  std::byte* block = nullptr;
  if (used) {
    block = freed.back();
    freed.pop_back();
  } else {
    if (whole > kBytes - used_) return {nullptr, false};
    block = begin_ + used_;
    used_ += whole;
    poison(alias_of(block), bytes);
  }
  live_[block] = {{block, bytes, owner}, true};
  live_bytes_ += whole;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  return {block, used};
}

std::optional<Blocks::Block> Blocks::give_back(void* begin) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = live_.find(static_cast<std::byte*>(begin));
  if (found == live_.end()) return std::nullopt;
  const auto [block, reusable] = found->second;
  live_.erase(found);
  live_bytes_ -= size_class(block.bytes);
  if (reusable) freed_[{block.owner, size_class(block.bytes)}].push_back(block.begin);
  return block;
}

void Blocks::never_reuse(void* begin) {
  const std::lock_guard<std::mutex> lock(mutex_);
  live_.at(static_cast<std::byte*>(begin)).reusable = false;
}

std::optional<Blocks::Block> Blocks::find(const void* address, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = live_.upper_bound(static_cast<const std::byte*>(address));
  if (found == live_.begin()) return std::nullopt;
  const Block& block = std::prev(found)->second.block;
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(address) - block.begin);
  if (offset >= block.bytes || bytes > block.bytes - offset) return std::nullopt;
  return block;
}

size_t Blocks::live_bytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return live_bytes_;
}

size_t Blocks::take_peak_bytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(peak_bytes_, live_bytes_);
}

}  // namespace simulator

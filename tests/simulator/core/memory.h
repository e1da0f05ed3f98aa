// SPDX-License-Identifier: Apache-2.0
// Memory of a simulated accelerator, and page-locked memory of the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace simulator {

// Sets all bits: NaN in every floating-point type, -1 in integers. Who reads too early, or too late, finds it.
inline constexpr int kPoison = 0xFF;
void poison(void* begin, size_t bytes);

// Blocks of one stretch of addresses. Freed ones are kept by owner and size. Thread safe.
class Blocks {
 public:
  // kStreams: the host cannot touch the addresses, any access ends the process. The threads of the streams use the same
  // memory at another address: alias_of(). kHost: all may use it.
  enum class Access : uint8_t { kHost, kStreams };
  struct Block {
    std::byte* begin = nullptr;
    size_t bytes = 0;   // as asked for
    int64_t owner = 0;  // what the caller of take() says: a stream, or a device
  };

  explicit Blocks(Access access);
  // Returns a block, and whether it was used before; null where there is no room. A fresh block holds poison.
  std::pair<std::byte*, bool> take(size_t bytes, int64_t owner);
  // The owner may get the block again. Returns the block that has ended; nothing where no live one begins.
  std::optional<Block> give_back(void* begin);
  // Nobody gets this live block again after its end.
  void never_reuse(void* begin);

  // The live block in which all these bytes lie.
  std::optional<Block> find(const void* address, size_t bytes);
  bool holds(const void* address) const { return address >= begin_ && address < begin_ + kBytes; }
  // REQUIRES: holds(address).
  std::byte* alias_of(const void* address) const {
    return alias_ + (static_cast<const std::byte*>(address) - begin_);
  }

  // Of live blocks, each rounded up.
  size_t live_bytes();
  size_t take_peak_bytes();  // the most since the last call

 private:
  static constexpr size_t kBytes = size_t{2} << 30;  // of addresses; pages come when they are first written

  struct Live {
    Block block;
    bool reusable = true;
  };

  std::byte* begin_ = nullptr;
  std::byte* alias_ = nullptr;
  std::mutex mutex_;
  size_t used_ = 0;
  std::map<const std::byte*, Live> live_;
  std::map<std::pair<int64_t, size_t>, std::vector<std::byte*>> freed_;
  size_t live_bytes_ = 0;
  size_t peak_bytes_ = 0;
};

}  // namespace simulator

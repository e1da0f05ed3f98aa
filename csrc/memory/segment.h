// SPDX-License-Identifier: Apache-2.0
// Memory that processes of one host share. It has no name in any file system. It lives as long as a process maps
// it, so a killed process leaves nothing behind.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace braid {

class Segment {
 public:
  // The first bytes of every segment belong to the segment itself (its nonce); the rest starts as zeros.
  static constexpr size_t kReservedBytes = 64;

  // A new segment of at least `bytes`, rounded up to whole pages. Its size is sealed: neither this process nor a
  // peer can shrink it. Pages cost nothing until they are touched; reserve() them first if memory may be short.
  // /proc/<pid>/maps shows `label`.
  static Result<Segment> create(const char* label, size_t bytes);

  // Maps the segment that `handle` describes. Another process made the handle, or this one. Succeeds only if the
  // handle leads to the right memory: of the same size, sealed, and holding the handle's nonce.
  static Result<Segment> attach(std::string_view handle);

  // The process that the handle names as the creator of the segment. This is not checked.
  static Result<pid_t> owner_of(std::string_view handle);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  pid_t owner() const { return owner_; }  // the process that created it
  // The text that attach() needs. It works as long as the segment of its creator exists.
  const std::string& handle() const { return handle_; }

 private:
  Segment() = default;

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;  // only in the creator: peers open it through /proc
  pid_t owner_ = -1;
  std::string handle_;
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// A piece of memory that processes of one host share. It has no name in any file system: it lives as long as
// somebody maps it, so a killed process leaves nothing behind.
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
  // peer can shrink it. Pages cost nothing until they are touched; where none may be left, reserve() them first.
  // `label` is
  // what /proc/<pid>/maps shows.
  static Result<Segment> create(const char* label, size_t bytes);

  // Maps the segment that another process (or this one) described by its handle. Succeeds only if the memory behind
  // the handle is really reached: same size, sealed, and holding the handle's nonce.
  static Result<Segment> attach(std::string_view handle);

  // The process that made the segment of this handle, if it says so truly.
  static Result<pid_t> owner_of(std::string_view handle);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  pid_t owner() const { return owner_; }  // the process that created it
  // What attach() needs; works as long as the creating Segment exists.
  const std::string& handle() const { return handle_; }

 private:
  Segment() = default;

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;  // of the creator only: peers open it through /proc
  pid_t owner_ = -1;
  std::string handle_;
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace braid {

// A descriptor, closed by its owner.
//
// A forked child closes all of its copies at once. A child (a worker that loads data, say) may outlive a parent that was
// killed. Peers see the end of a connection only when no process holds it any more.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd);
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), made_under_(other.made_under_) {}
  Fd& operator=(Fd&& other) noexcept {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    made_under_ = other.made_under_;
    return *this;
  }
  ~Fd() { reset(); }

  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  // In a forked child nothing is closed: the number may be another descriptor's by now.
  void reset();

 private:
  int fd_ = -1;
  int made_under_ = 0;  // so many forks
};

}  // namespace braid

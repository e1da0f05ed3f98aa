// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace braid {

// A descriptor, closed by its owner.
//
// A forked child closes all its copies at once. The reason: a child (for example a worker that loads data) may
// outlive a parent that was killed, and peers see the end of a connection only when no process holds it any more.
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
  // Closes nothing in a forked child: there another descriptor may have the number by now.
  void reset();

 private:
  int fd_ = -1;
  int made_under_ = 0;  // the number of forks before this descriptor was made
};

}  // namespace braid

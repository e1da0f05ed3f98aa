// SPDX-License-Identifier: Apache-2.0
// Non-blocking stream sockets, closed by their owner and on exec.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "base/status.h"
#include "transport/tcp/address.h"

namespace braid {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Fd() { reset(); }

  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  void reset();

 private:
  int fd_ = -1;
};

Address local_address_of(int socket);

Result<Fd> listen_at(const Address& address);
// The connection is on its way; the socket becomes writable when it is there or has failed.
// The error is an errno value, in `error_number`.
Fd begin_connect(const Address& address, int* error_number);
// No delay for small frames; a peer's machine that is gone is noticed within about 20 s.
void tune_connection(int socket);

// TCP sends no more than so many bytes per second, and then hands hardly more to the card than what passes in a
// millisecond; 0: as it thinks right.
void pace_socket(int socket, double bytes_per_s);

// What was written and the peer has not acknowledged yet; 0 when the system does not say.
size_t unacknowledged_bytes(int socket);

// What became of a connection, in words: "connection refused", "connection closed", ...
std::string describe_loss(int error_number);

}  // namespace braid

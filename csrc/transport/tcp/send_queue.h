// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/span.h"
#include "transport/channel.h"

namespace braid {

// How much may move over one connection while a group's mutex is held once.
inline constexpr size_t kSliceBytes = 256 * 1024;
inline constexpr size_t kSliceFrames = 16;

// The bytes that have gone to a peer, and the bytes that are still to go.
struct Passage {
  uint64_t passed_bytes = 0;  // acknowledged by the peer
  size_t held_bytes = 0;      // posted, and not acknowledged yet
  Passage& operator+=(const Passage& other) {
    passed_bytes += other.passed_bytes;
    held_bytes += other.held_bytes;
    return *this;
  }
};

// The frames that wait for one socket. Payloads are written from where they lie. Not thread safe.
class SendQueue {
 public:
  struct Outcome {
    size_t bytes = 0;
    bool full = false;     // the socket takes no more for now
    int error_number = 0;  // the connection is broken
  };

  // Copies the payload if there is no request, since then nothing keeps it valid.
  void push(const Frame& frame, ConstBytes payload, Request* request);
  // Makes one system call of at most a slice. Appends to `finished` the requests whose payload has left.
  Outcome write(int socket, std::vector<Request*>& finished);
  // Drops the frames with a request, but finishes a half-written frame from a copy.
  void drop_requests();
  // Drops all frames. Takes no memory.
  void clear();

  bool empty() const { return entries_.empty(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    Frame frame;
    ConstBytes payload;
    Request* request = nullptr;
    std::vector<std::byte> owned;  // `payload` points here if there is no request
  };

  std::deque<Entry> entries_;
  size_t written_ = 0;  // bytes of the first entry that are written, including its header
  size_t bytes_ = 0;
};

}  // namespace braid

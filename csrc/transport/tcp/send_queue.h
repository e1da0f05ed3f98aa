// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/span.h"
#include "transport/channel.h"

namespace braid {

// How much one hold of a group's mutex may move over one connection.
inline constexpr size_t kSliceBytes = 256 * 1024;
inline constexpr size_t kSliceFrames = 16;

// What has gone to a peer, and what is still to go.
struct Passage {
  uint64_t passed_bytes = 0;  // the peer has acknowledged them
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

  // Copies the payload when there is no request to say how long it lives.
  void push(const Frame& frame, ConstBytes payload, Request* request);
  // One system call of at most a slice. `finished` gets the requests whose payload has left.
  Outcome write(int socket, std::vector<Request*>& finished);
  // Forgets the frames with a request, but finishes a half-written one from a copy.
  void drop_requests();
  // Forgets all. Takes no memory.
  void clear();

  bool empty() const { return entries_.empty(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    Frame frame;
    ConstBytes payload;
    Request* request = nullptr;
    std::vector<std::byte> owned;  // where `payload` points when there is no request
  };

  std::deque<Entry> entries_;
  size_t written_ = 0;  // bytes of the first entry, header included
  size_t bytes_ = 0;
};

}  // namespace braid

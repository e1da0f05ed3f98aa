// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/send_queue.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

namespace braid {

void SendQueue::push(const Frame& frame, ConstBytes payload, Request* request) {
  Entry entry{frame, payload, request, {}};
  if (request == nullptr) {
    entry.owned.assign(payload.begin(), payload.end());
    entry.payload = entry.owned;  // the bytes stay at their address when the vector moves
  }
  entries_.push_back(std::move(entry));
  bytes_ += sizeof frame + payload.size();
}

void SendQueue::clear() {
  entries_.clear();
  written_ = bytes_ = 0;
}

SendQueue::Outcome SendQueue::write(int socket, std::vector<Request*>& finished) {
  std::array<iovec, 2 * kSliceFrames> parts;
  size_t count = 0, asked = 0, skip = written_;
  const auto add = [&](ConstBytes bytes) {
    const size_t skipped = std::min(skip, bytes.size());
    skip -= skipped;
    bytes = bytes.subspan(skipped, std::min(bytes.size() - skipped, kSliceBytes - asked));
    if (bytes.empty()) return;
    parts[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    asked += bytes.size();
  };
  const size_t frames = std::min(entries_.size(), kSliceFrames);
  // May throw, so before the write: afterwards the queue must be updated.
  finished.reserve(finished.size() + frames);
  for (size_t i = 0; i < frames && asked < kSliceBytes; ++i) {
    add(std::as_bytes(std::span(&entries_[i].frame, 1)));
    add(entries_[i].payload);
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return {0, errno == EAGAIN, errno == EAGAIN ? 0 : errno};
  written_ += static_cast<size_t>(sent);
  bytes_ -= static_cast<size_t>(sent);
  while (!entries_.empty()) {
    const Entry& first = entries_.front();
    const size_t whole = sizeof(Frame) + first.payload.size();
    if (written_ < whole) break;
    written_ -= whole;
    if (first.request != nullptr) finished.push_back(first.request);
    entries_.pop_front();
  }
  return {static_cast<size_t>(sent), static_cast<size_t>(sent) < asked, 0};
}

void SendQueue::drop_requests() {
  std::deque<Entry> kept;
  bytes_ = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const bool half_written = i == 0 && written_ > 0;
    if (entry.request != nullptr && !half_written) continue;
    if (entry.request != nullptr) {
      entry.owned.assign(entry.payload.begin(), entry.payload.end());
      entry.payload = entry.owned;
      entry.request = nullptr;
    }
    bytes_ += sizeof(Frame) + entry.payload.size();
    kept.push_back(std::move(entry));
  }
  bytes_ -= written_;
  entries_ = std::move(kept);
}

}  // namespace braid

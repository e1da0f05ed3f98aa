// SPDX-License-Identifier: Apache-2.0
// A raw socket to a listener, for tests that speak the protocol wrongly, and a log that is kept.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <mutex>
#include <string>
#include <vector>

#include "base/log.h"
#include "transport/frame.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/socket.h"

namespace braid::testing {

class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    const auto parsed = Address::parse(address);
    int error_number = 0;
    socket_ = begin_connect(parsed.value(), &error_number);
    EXPECT_TRUE(static_cast<bool>(socket_)) << error_number;
    pollfd writable{socket_.get(), POLLOUT, 0};
    EXPECT_EQ(::poll(&writable, 1, 5000), 1);
  }

  void say(const void* bytes, size_t size) { (void)::send(socket_.get(), bytes, size, MSG_NOSIGNAL); }
  // False when the other side closed before all bytes were there, or said nothing for 5 s.
  bool hear(void* into, size_t size) {
    for (size_t got = 0; got < size;) {
      if (!readable(5000)) return false;
      const ssize_t more = ::recv(socket_.get(), static_cast<char*>(into) + got, size - got, 0);
      if (more <= 0) return false;
      got += static_cast<size_t>(more);
    }
    return true;
  }
  // True when the other side closes within the time; what it says until then is dropped.
  bool is_closed_within(int time_ms) {
    char dropped[256];
    while (readable(time_ms)) {
      if (::recv(socket_.get(), dropped, sizeof dropped, 0) <= 0) return true;
    }
    return false;
  }

  // The honest claim of a member: says who it is, and proves it for the challenge that comes.
  Claim claim(const std::string& group, const std::string& secret, Node from, Node to, uint32_t index = 0) {
    Opening opening;
    opening.from_rank = from;
    opening.to_rank = to;
    opening.index = index;
    opening.nonce = {7, 7};
    opening.group = sha256(bytes_of(group));
    return claim(opening, opening, secret);
  }
  // Says one thing and proves another.
  Claim claim(const Opening& said, const Opening& proved, const std::string& secret) {
    say(&said, sizeof said);
    heard_challenge_ = hear(&challenge_, sizeof challenge_);
    return {said, prove_connect(secret, challenge_, proved)};
  }
  bool heard_challenge() const { return heard_challenge_; }
  const Challenge& challenge() const { return challenge_; }
  // True when the other side proves the same.
  bool is_accepted(const Claim& claim, const std::string& secret) {
    say(&claim.proof, sizeof claim.proof);
    return hear(&answer_, sizeof answer_) && answer_ == prove_accept(secret, challenge_, claim.opening);
  }
  // After that: were we told that somebody has our place?
  bool is_told_of_another(const Claim& claim, const std::string& secret) const {
    return answer_ == prove_taken(secret, challenge_, claim.opening);
  }
  void send_frame(const Frame& frame, ConstBytes payload = {}) {
    say(&frame, sizeof frame);
    say(payload.data(), payload.size());
  }

 private:
  bool readable(int time_ms) {
    pollfd readable{socket_.get(), POLLIN, 0};
    return ::poll(&readable, 1, time_ms) == 1;
  }

  Fd socket_;
  Challenge challenge_;
  bool heard_challenge_ = false;
  Digest answer_{};
};

class KeptLog {
 public:
  KeptLog() {
    lines().clear();
    set_log_sink([](LogLevel, const char* line) {
      const std::lock_guard lock(mutex());
      lines().push_back(line);
    });
  }
  ~KeptLog() { set_log_sink(nullptr); }
  std::vector<std::string> take() const {
    const std::lock_guard lock(mutex());
    return lines();
  }

 private:
  static std::vector<std::string>& lines() {
    static std::vector<std::string> kept;
    return kept;
  }
  static std::mutex& mutex() {
    static std::mutex guard;
    return guard;
  }
};

}  // namespace braid::testing

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

  // The honest claim of a member, for the challenge that was heard.
  Claim claim(const std::string& group, const std::string& secret, Node from, Node to, uint32_t index = 0) {
    EXPECT_TRUE(hear(&challenge_, sizeof challenge_));
    Claim claim;
    claim.from_rank = from;
    claim.to_rank = to;
    claim.index = index;
    claim.nonce = {7, 7};
    claim.group = sha256(bytes_of(group));
    claim.proof = prove_connect(secret, challenge_, claim);
    return claim;
  }
  // True when the other side proves the same.
  bool is_accepted(const Claim& claim, const std::string& secret) {
    say(&claim, sizeof claim);
    Digest proof{};
    return hear(&proof, sizeof proof) && proof == prove_accept(secret, challenge_, claim);
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
  std::vector<std::string> take() {
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

// SPDX-License-Identifier: Apache-2.0
// Thousands of connections to one listener that say next to nothing, and come again when they are closed.
#pragma once

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "transport/tcp/socket.h"

namespace braid::testing {

// Raises or lowers how many descriptors this process may have, for a while.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(size_t most) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit wanted = before_;
    wanted.rlim_cur = std::min<rlim_t>(most, before_.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &wanted);
    now_ = wanted.rlim_cur;
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  size_t now() const { return now_; }

 private:
  rlimit before_{};
  size_t now_ = 0;
};

class Flood {
 public:
  Flood(const std::string& address, size_t count, std::string words)
      : address_(Address::parse(address).value()), words_(std::move(words)), sockets_(count) {
    epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
    thread_ = std::thread([this] { run(); });
    while (begun_ < count) std::this_thread::sleep_for(milliseconds(1));
  }
  ~Flood() {
    stop_ = true;
    thread_.join();
  }
  size_t begun() const { return begun_; }

 private:
  void begin(size_t i) {
    int error_number = 0;
    sockets_[i] = begin_connect(address_, &error_number);
    ++begun_;
    if (!sockets_[i]) return;
    epoll_event event{EPOLLIN | EPOLLRDHUP | (words_.empty() ? 0u : EPOLLOUT | EPOLLET), {.u64 = i}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, sockets_[i].get(), &event);
  }
  void run() {
    for (size_t i = 0; i < sockets_.size() && !stop_; ++i) begin(i);
    std::array<epoll_event, 256> events;
    while (!stop_) {
      const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 20);
      for (int e = 0; e < count; ++e) {
        const auto i = static_cast<size_t>(events[static_cast<size_t>(e)].data.u64);
        const uint32_t what = events[static_cast<size_t>(e)].events;
        char heard[256];
        const bool ended = (what & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) != 0;
        if (!ended && (what & EPOLLOUT) != 0)
          (void)::send(sockets_[i].get(), words_.data(), words_.size(), MSG_NOSIGNAL);
        if (ended || ((what & EPOLLIN) != 0 && ::recv(sockets_[i].get(), heard, sizeof heard, 0) == 0)) begin(i);
      }
    }
  }

  const Address address_;
  const std::string words_;
  std::vector<Fd> sockets_;
  Fd epoll_;
  std::atomic<size_t> begun_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace braid::testing

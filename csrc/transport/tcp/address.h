// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "base/status.h"

namespace braid {

// An IPv4 or IPv6 address and port, in the form that sockets take.
class Address {
 public:
  Address() = default;
  Address(const sockaddr* address, socklen_t bytes);

  // "10.0.0.1:4711", "[fe80::1%eth0]:4711". Names are not looked up.
  static Result<Address> parse(const std::string& text);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }
  int family() const { return storage_.ss_family; }
  bool is_loopback() const;
  bool is_link_local() const;
  void set_port(uint16_t port);

  std::string host() const;  // "10.0.0.1", "fe80::1%eth0"
  std::string text() const;  // parse() reads it

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

}  // namespace braid

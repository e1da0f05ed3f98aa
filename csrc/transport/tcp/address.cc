// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>

namespace braid {
namespace {

// Enough for an IPv6 address in brackets, the longest name of an interface, and a port.
constexpr size_t kLongestText = 96;

}  // namespace

Address::Address(const sockaddr* address, socklen_t bytes)
    : size_(std::min(bytes, static_cast<socklen_t>(sizeof storage_))) {
  std::memcpy(&storage_, address, size_);
}

Result<Address> Address::parse(const std::string& text) {
  const auto wrong = [&] {
    std::string shown = text.substr(0, kLongestText);
    for (char& c : shown) c = c < ' ' || c > '~' ? '?' : c;
    return Status(Code::kInvalidArgument, "'" + shown + "' is no address like 10.0.0.1:4711 or [::1]:4711");
  };
  const size_t colon = text.rfind(':');
  // Rejects text that the system's parser would read differently: it stops at a zero, and takes any number for a
  // port.
  const bool readable = std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (colon == std::string::npos || text.size() > kLongestText || !readable) return wrong();
  std::string host = text.substr(0, colon);
  const std::string port = text.substr(colon + 1);
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size()) return wrong();
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);

  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (host.empty() || ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return wrong();
  const Address address(found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  return address;
}

bool Address::is_loopback() const {
  if (family() == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr) >> 24) == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

bool Address::is_link_local() const {
  if (family() == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr) >> 16) == 0xa9fe;
  }
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

void Address::set_port(uint16_t port) {
  if (family() == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_port = htons(port);
  }
}

std::string Address::host() const {
  char host[NI_MAXHOST] = "?";
  (void)::getnameinfo(get(), size(), host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

std::string Address::text() const {
  const uint16_t port = family() == AF_INET ? reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port
                                            : reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port;
  const std::string suffix = ":" + std::to_string(ntohs(port));
  return family() == AF_INET6 ? "[" + host() + "]" + suffix : host() + suffix;
}

}  // namespace braid

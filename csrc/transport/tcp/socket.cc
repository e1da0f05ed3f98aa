// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/socket.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <system_error>

namespace braid {
namespace {

constexpr milliseconds kShortestSilence{10'000};
constexpr milliseconds kLongestSilence{32'000'000};  // the system's longest pause before it probes
constexpr int kProbes = 3;

void set_option(int socket, int level, int option, int value) {
  (void)::setsockopt(socket, level, option, &value, sizeof value);
}

constexpr int kSilentSeconds = 8;

// With SYN cookies the system accepts new connections even if many incomplete ones fill its queue.
// `why` is the system's error number.
Result<Fd> listen_at_once(const Address& address, int port, int* why = nullptr) {
  Fd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return system_error("cannot open a socket", errno);
  // A port of a range may still have closed connections of an earlier job. Two listeners never share a port.
  if (port != 0) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd.get(), address.get(), address.size()) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    if (why != nullptr) *why = errno;
    const std::string at_port = port != 0 ? ", port " + std::to_string(port) + " of BRAID_PORTS" : "";
    return system_error("cannot listen at " + address.host() + at_port, errno);
  }
  return fd;
}

bool has_syn_cookies() {
  int value = 0;
  return std::ifstream("/proc/sys/net/ipv4/tcp_syncookies") >> value && value > 0;
}

}  // namespace

Address local_address_of(int socket) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  (void)::getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &bytes);
  return {reinterpret_cast<const sockaddr*>(&storage), bytes};
}

Address remote_address_of(int socket) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  (void)::getpeername(socket, reinterpret_cast<sockaddr*>(&storage), &bytes);
  return {reinterpret_cast<const sockaddr*>(&storage), bytes};
}

Result<Fd> listen_at(const Address& address, const PortRange& ports) {
  if (ports.any()) return listen_at_once(address, 0);
  Address place = address;
  for (int port = ports.first; port <= ports.last; ++port) {
    place.set_port(static_cast<uint16_t>(port));
    int why = 0;
    auto fd = listen_at_once(place, port, &why);
    if (fd.ok() || why != EADDRINUSE) return fd;
  }
  return Status(Code::kSystem, "BRAID_PORTS=" + to_text(ports) + ": no port of this range is free at " +
                                   address.host() +
                                   ": give a longer range, every process of a host needs a port of its own");
}

void hold_silent(int listener, bool hold) {
  set_option(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, hold && has_syn_cookies() ? kSilentSeconds : 0);
}

Fd begin_connect(const Address& address, int* error_number) {
  *error_number = 0;
  Fd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd) tune_connection(fd.get());
  if (!fd || (::connect(fd.get(), address.get(), address.size()) != 0 && errno != EINPROGRESS)) {
    *error_number = errno;
    return {};
  }
  return fd;
}

void tune_connection(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  limit_silence(socket, milliseconds(16'000));
}

void limit_silence(int socket, milliseconds peer_timeout) {
  const bool limited = peer_timeout.count() > 0;
  const milliseconds most = std::clamp(peer_timeout + peer_timeout / 4, kShortestSilence, kLongestSilence);
  const int probes_s = static_cast<int>(most.count() / 1000 / (kProbes + 1));
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, limited ? static_cast<int>(most.count()) : 0);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, limited ? 1 : 0);
  if (!limited) return;
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, probes_s);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, probes_s);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

void close_abruptly(int socket) {
  const linger at_once{1, 0};
  (void)::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

void pace_socket(int socket, double bytes_per_s) {
  const uint64_t most = bytes_per_s > 0 ? static_cast<uint64_t>(bytes_per_s) : ~uint64_t{0};
  (void)::setsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &most, sizeof most);
}

size_t unacknowledged_bytes(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? static_cast<size_t>(bytes) : 0;
}

std::string describe_loss(int error_number) {
  switch (error_number) {
    case 0:
    case EPIPE:
    case ECONNRESET: return "connection closed";
    case ECONNREFUSED: return "connection refused";
    case ETIMEDOUT: return "connection timed out";
    default: return std::generic_category().message(error_number);
  }
}

}  // namespace braid

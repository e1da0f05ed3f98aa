// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/socket.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace braid {
namespace {

void set_option(int socket, int level, int option, int value) {
  (void)::setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Address local_address_of(int socket) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  (void)::getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &bytes);
  return {reinterpret_cast<const sockaddr*>(&storage), bytes};
}

Result<Fd> listen_at(const Address& address) {
  Fd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return system_error("cannot open a socket", errno);
  if (::bind(fd.get(), address.get(), address.size()) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    return system_error("cannot listen at " + address.host(), errno);
  }
  return fd;
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
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 20'000);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
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

// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "transport/tcp/socket.h"

namespace braid {
namespace {

struct LocalAddress {
  std::string interface;
  Address address;
  bool up = false;
  bool loopback = false;
};

Result<std::vector<LocalAddress>> local_addresses() {
  std::vector<LocalAddress> found;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return system_error("cannot list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, ::freeifaddrs);
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    found.push_back({entry->ifa_name, Address(entry->ifa_addr, bytes), (entry->ifa_flags & IFF_UP) != 0,
                     (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return found;
}

// IPv4 first, because more peers reach it than IPv6; link-local addresses last, because they need a scope.
int preference(const Address& address) {
  return (address.is_link_local() ? 2 : 0) + (address.family() == AF_INET ? 0 : 1);
}

template <class Wanted>
std::optional<Address> best(const std::vector<LocalAddress>& all, Wanted wanted) {
  const LocalAddress* choice = nullptr;
  for (const LocalAddress& local : all) {
    if (!wanted(local)) continue;
    if (choice == nullptr || preference(local.address) < preference(choice->address)) choice = &local;
  }
  return choice == nullptr ? std::nullopt : std::optional(choice->address);
}

Status no_such_interface(const std::string& name, const std::vector<LocalAddress>& all) {
  std::map<std::string, std::string> addresses;
  for (const LocalAddress& local : all) {
    std::string& text = addresses[local.interface];
    text += (text.empty() ? "" : ", ") + local.address.host();
  }
  std::string list;
  for (const auto& [interface, text] : addresses) {
    list += (list.empty() ? "" : "; ") + interface + " (" + text + ")";
  }
  return {Code::kInvalidArgument,
          "no network interface or local address is named '" + name + "'; there are " + list};
}

// Returns nothing if there is no route. Returns an error if the system could not be asked: then braid must not
// choose another address, because peers might not reach it.
Result<std::optional<Address>> routed_from(const std::string& reach) {
  std::optional<Address> from;
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* first = nullptr;
  const int failed = ::getaddrinfo(reach.c_str(), "9", &hints, &first);
  if (failed == EAI_SYSTEM) return system_error("cannot look up " + reach, errno);
  if (failed != 0) return from;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(first, ::freeaddrinfo);
  in6_addr number;
  const bool literal = ::inet_pton(AF_INET, reach.c_str(), &number) == 1 ||
                       ::inet_pton(AF_INET6, reach.c_str(), &number) == 1 || reach == "localhost";
  Status refused;
  for (const addrinfo* entry = first; entry != nullptr && !from; entry = entry->ai_next) {
    const Address to(entry->ai_addr, entry->ai_addrlen);
    if (to.is_loopback() && !literal) continue;
    // To connect a datagram socket sends nothing; it only looks up the route.
    const Fd probe(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!probe && errno != EAFNOSUPPORT) refused = system_error("cannot open a socket", errno);
    if (!probe || ::connect(probe.get(), to.get(), to.size()) != 0) continue;
    from = local_address_of(probe.get());
  }
  if (!from && !refused.ok()) return refused;
  return from;
}

}  // namespace

Result<Address> choose_local_address(const std::string& interface, const std::string& reach) {
  const auto listed = local_addresses();
  if (!listed.ok()) return listed.status();
  const std::vector<LocalAddress>& all = listed.value();
  std::optional<Address> choice;
  if (!interface.empty()) {
    choice = best(all, [&](const LocalAddress& l) { return l.interface == interface; });
    if (!choice) choice = best(all, [&](const LocalAddress& l) { return l.address.host() == interface; });
    if (!choice) return no_such_interface(interface, all);
  }
  if (!choice && !reach.empty()) {
    const auto routed = routed_from(reach);
    if (!routed.ok()) return routed.status();
    choice = routed.value();
  }
  if (!choice) choice = best(all, [](const LocalAddress& l) { return l.up && !l.loopback; });
  if (!choice) choice = best(all, [](const LocalAddress& l) { return l.loopback; });
  if (!choice) return Status(Code::kUnsupported, "this machine has no network interface, not even loopback");
  choice->set_port(0);
  return *choice;
}

std::string interface_at(const Address& address) {
  const auto all = local_addresses();
  if (!all.ok()) return "";
  for (const LocalAddress& local : all.value()) {
    if (local.address.host() == address.host()) return local.interface;
  }
  return "";
}

}  // namespace braid

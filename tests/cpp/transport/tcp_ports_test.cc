// SPDX-License-Identifier: Apache-2.0
// Listeners stay within the range that BRAID_PORTS gives.
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "transport/tcp/address.h"
#include "transport/tcp_group.h"

namespace braid::testing {
namespace {

int port_of(const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); }

// Ports below those that the system gives away by itself, and different ones for each process of the tests.
PortRange some_ports(int count) {
  const int first = 20000 + static_cast<int>(::getpid()) % 1200 * 10;
  return {first, first + count - 1};
}

Result<std::shared_ptr<TcpEndpoint>> listen(const PortRange& ports, Reactor& reactor) {
  TcpOptions options = tcp_options();
  options.ports = ports;
  return TcpEndpoint::create(options, reactor);
}

TEST(TcpPorts, ListenersTakeTheFreePortsOfTheRangeAndThenFail) {
  Reactor reactor;
  const PortRange ports = some_ports(4);
  std::vector<std::shared_ptr<TcpEndpoint>> endpoints;
  Status refused;
  for (int i = 0; i <= 4 && refused.ok(); ++i) {  // another process may have some of the ports
    auto endpoint = listen(ports, reactor);
    if (!endpoint.ok()) {
      refused = endpoint.status();
      break;
    }
    const int port = port_of(endpoint.value()->address());
    EXPECT_GE(port, ports.first);
    EXPECT_LE(port, ports.last);
    for (const auto& earlier : endpoints) EXPECT_NE(port_of(earlier->address()), port);
    endpoints.push_back(std::move(endpoint).value());
  }
  ASSERT_FALSE(endpoints.empty());
  EXPECT_EQ(refused.code(), Code::kSystem);
  EXPECT_EQ(refused.message(),
            "BRAID_PORTS=" + to_text(ports) +
                ": no port of this range is free at 127.0.0.1: give a longer range, every process "
                "of a host needs a port of its own");
  // A port is free again at once when its listener is gone.
  const int freed = port_of(endpoints.back()->address());
  endpoints.pop_back();
  const auto again = listen({freed, freed}, reactor);
  EXPECT_TRUE(again.ok()) << again.status().message();
}

TEST(TcpPorts, APortThatTheSystemForbidsIsNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may listen at every port";
  Reactor reactor;
  const auto endpoint = listen({1, 9}, reactor);
  if (endpoint.ok()) GTEST_SKIP() << "this system lets everybody listen at port 1";
  EXPECT_NE(endpoint.status().message().find("port 1 of BRAID_PORTS"), std::string::npos)
      << endpoint.status().message();
}

}  // namespace
}  // namespace braid::testing

// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp.h"

#include "transport/tcp_group.h"

namespace braid::testing {
namespace {

Wire tcp(const std::string& name, const std::string& interface, int connections) {
  return {name, [=](int ranks) {
            auto net = std::make_shared<TcpNet>(ranks, tcp_options(interface, connections));
            return std::make_unique<TcpTestGroup>(net, "contract");
          }};
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportContract,
                         ::testing::Values(tcp("ipv4_1", "127.0.0.1", 1), tcp("ipv4_3", "127.0.0.1", 3),
                                           tcp("ipv6_1", "::1", 1), tcp("ipv6_3", "::1", 3)),
                         wire_name);

}  // namespace
}  // namespace braid::testing

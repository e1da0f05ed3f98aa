// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "transport/tcp/address.h"

namespace braid {

// Returns the local address (port 0) that peers shall use: the first of these that applies.
// - The address of `interface`, if it is not "": the name of an interface, or a local address. kInvalidArgument,
//   with a list of the interfaces, if it does not exist.
// - The address from which `reach` is routed. This is loopback if `reach` is "localhost" or a loopback address.
//   Other names that resolve to loopback are ignored: a machine's own name often resolves to 127.0.1.1 on that
//   machine, which tells nothing about its peers.
// - The first interface that is up and not loopback, or loopback if there is none.
Result<Address> choose_local_address(const std::string& interface, const std::string& reach);

// The name of the network interface that has this address, "" if there is none.
std::string interface_at(const Address& address);

}  // namespace braid

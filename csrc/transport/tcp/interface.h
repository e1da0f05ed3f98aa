// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "transport/tcp/address.h"

namespace braid {

// The local address (port 0) that peers shall use.
// - `interface` names an interface or is a local address: that one; kInvalidArgument, listing what there is,
//   when there is no such thing.
// - Otherwise the address from which `reach` is routed: loopback when `reach` is "localhost" or a loopback address.
//   (A machine's own name often resolves to 127.0.1.1 on itself; that says nothing about its peers, so another
//   name that leads to loopback is ignored.)
// - Otherwise the first interface that is up and not loopback; loopback when there is none.
Result<Address> choose_local_address(const std::string& interface, const std::string& reach);

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// Non-blocking stream sockets, closed by their owner and on exec.
#pragma once

#include <cstddef>
#include <string>

#include "base/clock.h"
#include "base/port_range.h"
#include "base/status.h"
#include "transport/tcp/address.h"
#include "transport/tcp/fd.h"

namespace braid {

Address local_address_of(int socket);
Address remote_address_of(int socket);

// Listens at the first free port of `ports`, or at the address as it is if that is any port. kSystem if none is free.
Result<Fd> listen_at(const Address& address, const PortRange& ports = {});
// With `hold`, the system keeps a new connection to itself for some seconds, until bytes have arrived on it.
// Without `hold` it does not. Changes nothing if the system would then refuse new connections for lack of room.
void hold_silent(int listener, bool hold);
// Begins to connect. The socket becomes writable when the connection is made or has failed. On an error sets
// `error_number` to an errno value.
Fd begin_connect(const Address& address, int* error_number);
// Sends small frames without delay, and detects a machine that is gone within about 20 s.
void tune_connection(int socket);
// The system gives up on a peer that acknowledges nothing for 1.25 * peer_timeout, and for at least 10 s. With 0
// it never gives up on a peer that has nothing to acknowledge, and gives up on others after some 15 minutes.
// Mailboxes watch needed peers more closely (look_for_silence); this limit is for connections that nobody waits
// for.
void limit_silence(int socket, milliseconds peer_timeout);

// When this socket is closed, the other side gets a reset, and the system forgets the connection at once.
void close_abruptly(int socket);

// Limits TCP to so many bytes per second; 0: no limit. With a limit TCP hands the NIC hardly more at a time than
// passes in a millisecond.
void pace_socket(int socket, double bytes_per_s);

// The number of bytes that were written and are not acknowledged yet; 0 if the system does not tell.
size_t unacknowledged_bytes(int socket);

// Why a connection ended, in words: "connection refused", "connection closed", ...
std::string describe_loss(int error_number);

}  // namespace braid

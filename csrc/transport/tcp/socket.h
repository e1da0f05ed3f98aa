// SPDX-License-Identifier: Apache-2.0
// Non-blocking stream sockets, closed by their owner and on exec.
#pragma once

#include <cstddef>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "transport/tcp/address.h"
#include "transport/tcp/fd.h"

namespace braid {

Address local_address_of(int socket);
Address remote_address_of(int socket);

Result<Fd> listen_at(const Address& address);
// From now on, or no longer, the system keeps connections to itself, for some seconds, on which nothing was said. No
// change where it would refuse newcomers then for want of room.
void hold_silent(int listener, bool hold);
// The connection is on its way; the socket becomes writable when it is there or has failed.
// The error is an errno value, in `error_number`.
Fd begin_connect(const Address& address, int* error_number);
// No delay for small frames; a machine that is gone is noticed within about 20 s.
void tune_connection(int socket);
// The system gives up on a peer that acknowledges nothing for a quarter longer than that, and 10 s at least; 0: never
// on one that has nothing to acknowledge, and after some 15 minutes on one that has. Members watch each other more
// closely (Mailbox::look_for_silence); this is for what nobody waits for.
void limit_silence(int socket, milliseconds peer_timeout);

// When this socket is closed, the other side hears of a reset, and the system forgets the connection at once.
void close_abruptly(int socket);

// TCP sends no more than so many bytes per second, and then hands hardly more to the NIC than what passes in a
// millisecond; 0: as it thinks right.
void pace_socket(int socket, double bytes_per_s);

// What was written and the peer has not acknowledged yet; 0 when the system does not say.
size_t unacknowledged_bytes(int socket);

// What became of a connection, in words: "connection refused", "connection closed", ...
std::string describe_loss(int error_number);

}  // namespace braid

# SPDX-License-Identifier: Apache-2.0
"""A small key-value server, which rank 0 opens for the others to meet at.

A connection begins with a greeting and a token from the client, and the greeting back when the token is right.
Then the client asks and the server answers, one at a time: SET key value, or GET key, which waits for the key.
Nothing is unpickled or evaluated. Who knows the token, or reaches a server without one, can learn the secret of
the groups that meet there, as with torch's TCPStore.
"""

import contextlib
import hmac
import os
import socket
import struct
import threading
import weakref

GREETING = b"braid store 1\n\0\0"
TOKEN_BYTES = 16
NO_TOKEN = bytes(TOKEN_BYTES)
SET, GET = b"S", b"G"
REQUEST = struct.Struct("!cIId")  # which, length of the key, of the value, seconds to wait
REPLY = struct.Struct("!?I")  # whether there is a value, its length

_MOST_KEY_BYTES = 4096
_MOST_VALUE_BYTES = 1 << 20
_BACKLOG = 1024
_GREETING_TIME_S = 10.0


def receive(connection: socket.socket, count: int) -> bytes:
    """Return exactly so many bytes; a ConnectionError when the peer ends before."""
    data = bytearray()
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the connection was closed")
        data += part
    return bytes(data)


_servers: weakref.WeakSet["Server"] = weakref.WeakSet()


def _after_fork() -> None:
    for server in _servers:
        server.forget()


os.register_at_fork(after_in_child=_after_fork)


class Server:
    """Listens from when it is made until its last user leaves, with one thread per client."""

    def __init__(self, host: str | None, port: int, token: bytes = NO_TOKEN) -> None:
        """Listen at an address of this machine; None stands for all, and port 0 for any that is free.

        Raises OSError.
        """
        if host is None and socket.has_dualstack_ipv6():
            listener = socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG
            )
        else:
            family = socket.AF_INET6 if ":" in (host or "") else socket.AF_INET
            listener = socket.create_server((host or "", port), family=family, backlog=_BACKLOG)
        self.port: int = listener.getsockname()[1]
        self._listener = listener
        self._token = token
        self._pid = os.getpid()
        self._values: dict[bytes, bytes] = {}
        self._changed = threading.Condition()
        self._clients: set[socket.socket] = set()
        self._users = 1
        _servers.add(self)
        threading.Thread(target=self._accept, name="braid-store", daemon=True).start()

    def share(self) -> bool:
        """One user more; False when the last one has left already."""
        with self._changed:
            self._users += self._users > 0
            return self._users > 0

    def leave(self) -> None:
        """One user less. After the last one everybody is hung up on, and the port is free."""
        if self._pid != os.getpid():
            return  # a forked child must not hang up for its parent
        with self._changed:
            self._users -= 1
            if self._users > 0:
                return
            self._changed.notify_all()
            for connection in [self._listener, *self._clients]:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def forget(self) -> None:
        """In a forked child: let go of the port, which only the parent serves."""
        for connection in [self._listener, *self._clients]:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="braid-store", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with self._changed:
            if self._users == 0:
                connection.close()
                return
            self._clients.add(connection)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(_GREETING_TIME_S)
            hello = receive(connection, len(GREETING) + TOKEN_BYTES)
            if not hmac.compare_digest(hello, GREETING + self._token):
                return
            connection.sendall(GREETING)
            connection.settimeout(None)
            while self._answer(connection):
                pass
        except OSError:
            pass  # the client has gone
        finally:
            with self._changed:
                self._clients.discard(connection)
            connection.close()

    def _answer(self, connection: socket.socket) -> bool:
        kind, key_bytes, value_bytes, timeout_s = REQUEST.unpack(receive(connection, REQUEST.size))
        if kind not in (SET, GET) or key_bytes > _MOST_KEY_BYTES or value_bytes > _MOST_VALUE_BYTES:
            return False
        key = receive(connection, key_bytes)
        value: bytes | None = receive(connection, value_bytes)
        with self._changed:
            if kind == SET:
                self._values[key] = value or b""
                self._changed.notify_all()
            else:
                self._changed.wait_for(lambda: self._users == 0 or key in self._values, max(0.0, timeout_s))
                value = self._values.get(key)
            if self._users == 0:
                return False
        connection.sendall(REPLY.pack(value is not None, len(value or b"")) + (value or b""))
        return True

# SPDX-License-Identifier: Apache-2.0
"""The client of the key-value server. On rank 0 it also owns the server."""

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Callable

from braid._array.rendezvous.protocol import (
    FAMILY,
    GET,
    GREETING,
    LONGEST_WAIT_S,
    MOST_KEY_BYTES,
    MOST_VALUE_BYTES,
    NO_TOKEN,
    NONE,
    REFUSED,
    REPLY,
    REQUEST,
    SET,
    VALUE,
)
from braid._array.rendezvous.server import Server
from braid._array.rendezvous.stores import KeyValueStore
from braid._errors import CommunicatorError, CommunicatorTimeoutError

_SHORTEST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.2
_ANSWER_TIME_S = 5.0
# The time limit of the first attempt to connect. The kernel repeats a lost attempt after 1 s, 3 s and 7 s. That is
# long if strangers crowd the port, so the first attempts are short.
_SHORTEST_PATIENCE_S = 0.3
_LONGEST_REASON = 300

# The servers of this process by address. Several communicators may use one address, at the same time or in turn.
_servers: dict[tuple[str, int], Server] = {}
_lock = threading.Lock()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _servers.clear()


os.register_at_fork(after_in_child=_after_fork)


def _receive(connection: socket.socket, count: int, deadline: float) -> bytes:
    """Return exactly `count` bytes. Raise ConnectionError if the peer closes, TimeoutError after the deadline."""
    data = bytearray()
    while len(data) < count:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the connection was closed")
        data += part
        if len(data) < count and time.monotonic() >= deadline:
            raise TimeoutError("the answer came too slowly")
    return bytes(data)


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _server_at(host: str, port: int) -> Server:
    with _lock:
        server = _servers.get((host, port))
        if server is not None and server.share():
            return server
        # Listen at all addresses, except on loopback: the host may have several, or a name for another one.
        bound_to = None if not _is_loopback(host) else "127.0.0.1" if host == "localhost" else host
        try:
            server = _servers[host, port] = Server(bound_to, port)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            text = f"rank 0 cannot listen at {host}:{port}: {reason}; choose another port"
            raise CommunicatorError(text) from error
        return server


class TcpStore(KeyValueStore):
    """The store in rank 0's process. It connects at its first use, and again after the server was restarted."""

    def __init__(
        self,
        hosts: list[str],
        port: int,
        *,
        timeout_s: float | None,
        token: bytes = NO_TOKEN,
        server: Server | None = None,
    ) -> None:
        """Take the server's addresses, which are tried in turn. On rank 0, close() leaves `server`."""
        self._hosts, self._port, self._token = hosts, port, token
        self._limit_s = math.inf if timeout_s is None else timeout_s
        self._server = server
        self._gives_up: Callable[[], bool] = lambda: False
        self._connection: socket.socket | None = None
        self._kept: dict[str, bytes] = {}  # our own keys and values: sent again to a restarted server

    @classmethod
    def at(cls, host: str, port: int, *, listen: bool, timeout_s: float | None) -> "TcpStore":
        """Return the store at an address. With `listen`, on rank 0, open the server there."""
        if not listen:
            return cls([host], port, timeout_s=timeout_s)
        hosts = [host] if _is_loopback(host) else ["127.0.0.1", host]
        return cls(hosts, port, timeout_s=timeout_s, server=_server_at(host, port))

    def again(self) -> "TcpStore":
        if self._server is not None:
            self._server.share()
        limit_s = None if math.isinf(self._limit_s) else self._limit_s
        return TcpStore(self._hosts, self._port, timeout_s=limit_s, token=self._token, server=self._server)

    def apart(self) -> "TcpStore":
        # This store is used long after the server started. If the server is gone, so is rank 0: do not wait long.
        store = self.again()
        store._limit_s = min(store._limit_s, _ANSWER_TIME_S)
        return store

    def give_up_when(self, condition: Callable[[], bool]) -> None:
        self._gives_up = condition

    def set(self, key: str, value: bytes) -> None:
        if len(value) > MOST_VALUE_BYTES or len(key.encode()) > MOST_KEY_BYTES:
            raise CommunicatorError(
                f"the store of rank 0 takes keys of up to {MOST_KEY_BYTES} bytes and values of up to "
                f"{MOST_VALUE_BYTES}; {key[:80]!r} has a value of {len(value)}"
            )
        before = self._kept.get(key)
        self._kept[key] = value
        try:
            self._ask(SET, key, value, 0.0)
        except CommunicatorTimeoutError:
            raise
        except CommunicatorError:  # refused: do not send it to a restarted server
            del self._kept[key]
            if before is not None:
                self._kept[key] = before
            raise

    def get(self, key: str, timeout_s: float) -> bytes:
        value = self._ask(GET, key, b"", min(timeout_s, LONGEST_WAIT_S))
        if value is None:
            raise TimeoutError(f"the store has no {key!r}")
        return value

    def rest(self) -> None:
        self._hang_up()
        self._kept.clear()

    def close(self) -> None:
        self.rest()
        server, self._server = self._server, None
        if server is not None:
            server.leave()

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ask(self, kind: bytes, key: str, value: bytes, timeout_s: float) -> bytes | None:
        begun = time.monotonic()
        deadline, pause_s = begun + self._limit_s, _SHORTEST_PAUSE_S
        while True:
            try:
                if self._connection is None:
                    self._connection = self._connect(deadline)
                    for old_key, old_value in self._kept.items():
                        self._exchange(self._connection, SET, old_key, old_value, 0.0)
                left_s = max(0.0, begun + timeout_s - time.monotonic())
                return self._exchange(self._connection, kind, key, value, left_s)
            except CommunicatorTimeoutError:
                raise
            except OSError as error:
                self._hang_up()
                if time.monotonic() >= deadline or self._gives_up():
                    raise self._nobody(str(error)) from error
            except BaseException:
                self._hang_up()  # Ctrl-C between question and answer
                raise
            time.sleep(max(0.0, min(pause_s, deadline - time.monotonic())))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _exchange(
        self, connection: socket.socket, kind: bytes, key: str, value: bytes, timeout_s: float
    ) -> bytes | None:
        name = key.encode()
        deadline = time.monotonic() + timeout_s + _ANSWER_TIME_S
        connection.settimeout(timeout_s + _ANSWER_TIME_S)
        connection.sendall(REQUEST.pack(kind, len(name), len(value), timeout_s) + name + value)
        which, count = REPLY.unpack(_receive(connection, REPLY.size, deadline))
        if which not in (NONE, VALUE, REFUSED) or count > MOST_VALUE_BYTES:
            raise CommunicatorError(
                f"what listens at port {self._port} gives answers that rank 0 of braid does not", 0
            )
        answer = _receive(connection, count, deadline)
        if which == REFUSED:
            reason = answer.decode(errors="replace")[:_LONGEST_REASON]
            raise CommunicatorError(f"the store of rank 0 refuses {key!r}: {reason}", 0)
        return answer if which == VALUE else None

    def _nobody(self, last: str) -> CommunicatorTimeoutError:
        where = " or ".join(f"{host}:{self._port}" for host in self._hosts)
        return CommunicatorTimeoutError(
            f"rank 0 does not listen at {where} (tried for {self._limit_s:g} s; the last answer was: {last})", 0
        )

    def _connect(self, deadline: float) -> socket.socket:
        pause_s, last, patience_s = _SHORTEST_PAUSE_S, "none", _SHORTEST_PATIENCE_S
        while True:
            if self._server is not None and self._server.failure:
                raise CommunicatorError(self._server.failure, 0)
            for host in self._hosts:
                try:
                    return self._greet(host, deadline, patience_s)
                except OSError as error:
                    last = error.strerror or str(error)
            if time.monotonic() >= deadline or self._gives_up():
                raise self._nobody(last)
            time.sleep(max(0.0, min(pause_s, deadline - time.monotonic())))
            pause_s, patience_s = min(2 * pause_s, _LONGEST_PAUSE_S), min(1.2 * patience_s, _ANSWER_TIME_S)

    def _greet(self, host: str, deadline: float, patience_s: float) -> socket.socket:
        limit_s = max(0.01, min(_ANSWER_TIME_S, deadline - time.monotonic()))
        with contextlib.ExitStack() as undo:
            connection = undo.enter_context(socket.create_connection((host, self._port), min(limit_s, patience_s)))
            connection.settimeout(limit_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(GREETING + self._token)
            try:
                answer = _receive(connection, len(GREETING), time.monotonic() + limit_s)
            except ConnectionResetError:
                hint = (
                    "it hung up on our greeting, as it does with another job's ranks, or another version of braid"
                )
                raise ConnectionResetError(hint) from None
            if answer.startswith(FAMILY) and answer != GREETING:
                raise CommunicatorError(
                    f"rank 0 at {host}:{self._port} has another version of braid, whose store speaks version "
                    f"{_version(answer)} while ours speaks {_version(GREETING)}: install the same on all hosts",
                    0,
                )
            if answer != GREETING:
                raise CommunicatorError(f"what listens at {host}:{self._port} is no rank 0 of braid", 0)
            undo.pop_all()
            return connection


def _version(greeting: bytes) -> str:
    text = greeting.removeprefix(FAMILY).rstrip(b"\n\0").decode("ascii", errors="replace")
    return text if text.isdecimal() else "unknown"

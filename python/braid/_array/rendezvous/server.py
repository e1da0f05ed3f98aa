# SPDX-License-Identifier: Apache-2.0
"""The key-value server's sockets: one thread for all clients. No client and no shortage can end the thread.

Rank 0 opens the server, and all ranks meet there. `board.py` has the conversations. Whoever knows the token, or
reaches a server without a token, can learn the secret of the groups that meet there, as with torch's TCPStore.
"""

import contextlib
import errno
import math
import os
import resource
import selectors
import socket
import struct
import sys
import threading
import time
import weakref

from braid._array.rendezvous.board import Board, Limits, Phase, Session
from braid._array.rendezvous.door import SHORTAGES, Door
from braid._array.rendezvous.protocol import NO_TOKEN
from braid._notices import Sparing

_ACCEPTED_AT_ONCE = 32  # then the connected clients have their turn
_FLOOD_PAUSE_S = (
    0.005  # the pause after so many, if others were closed for them: a flood must not take the whole processor
)
_SHORTAGE_PAUSE_S = 0.1
_MOST_FAILURES = 100  # consecutive failures; then the server gives up
_CHUNK_BYTES = 1 << 16
_CHUNKS_AT_ONCE = 16
_LEAVE_TIME_S = 2.0

_servers: weakref.WeakSet["Server"] = weakref.WeakSet()


def _after_fork() -> None:
    for server in list(_servers):
        server.forget()


os.register_at_fork(after_in_child=_after_fork)


def usual_limits() -> Limits:
    """Return the limits for this process: at most half of its descriptors, and a sixteenth for strangers."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors == resource.RLIM_INFINITY:
        descriptors = 1 << 20
    return Limits(
        clients=max(16, min(16384, descriptors // 2)), strangers=max(8, min(Limits.strangers, descriptors // 16))
    )


class Server:
    """A key-value server. It listens until its last user leaves."""

    def __init__(
        self, host: str | None, port: int, token: bytes = NO_TOKEN, *, limits: Limits | None = None
    ) -> None:
        """Listen at an address of this machine. None stands for all addresses, port 0 for any free port.

        Raises OSError.
        """
        self._ended = threading.Event()
        with contextlib.ExitStack() as undo:
            undo.callback(self._ended.set)
            self._door = Door(host, port)
            undo.callback(self._door.close)
            self.port = self._door.port
            self._selector = undo.enter_context(selectors.DefaultSelector())
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            undo.callback(os.close, self._wake)
            self._selector.register(self._wake, selectors.EVENT_READ)
            self.failure = ""  # why the server has ended; "" while it runs
            self._board = Board(token, limits or usual_limits())
            self._clients: dict[Session, socket.socket] = {}
            self._notices = Sparing("braid store")
            self._listens_from = 0.0
            self._is_listening = False
            self._failures = 0
            self._refused = 0
            self._pid = os.getpid()
            self._forgotten = False
            self._lock = threading.Lock()
            self._users = 1
            _servers.add(self)
            try:
                threading.Thread(target=self._run, name="braid-store", daemon=True).start()
            except RuntimeError as error:
                raise OSError(errno.EAGAIN, f"no thread can be started ({error})") from error
            undo.pop_all()

    def share(self) -> bool:
        """Add a user. Return False if the last user has left already, or if the server has failed."""
        if self._pid != os.getpid():
            return False  # it is the parent's server
        with self._lock:
            if self.failure or self._users == 0:
                return False
            self._users += 1
            return True

    def leave(self) -> None:
        """Remove a user. After the last one all connections are closed, and the port is free."""
        if self._pid != os.getpid():
            return  # a forked child must not close its parent's connections
        with self._lock:
            self._users -= 1
            if self._users != 0 or self._ended.is_set():
                return
            os.eventfd_write(self._wake, 1)
            self._door.shut()  # frees the port at once, before the thread ends
        if not sys.is_finalizing():  # at exit the thread does not run any more
            self._ended.wait(_LEAVE_TIME_S)

    def forget(self) -> None:
        """Close the port and the connections in a forked child. Only the parent serves them."""
        if self._forgotten or self._ended.is_set():
            return
        self._forgotten = True
        # The selector is closed first. Nothing may be unregistered: parent and child share the selector.
        self._selector.close()
        for connection in self._clients.values():
            connection.close()
        self._door.close()
        os.close(self._wake)

    # ---- the thread

    def _run(self) -> None:
        try:
            while self._users > 0:
                try:
                    self._round()
                    if self._is_listening:
                        self._failures = 0
                except Exception as error:
                    self._failures += 1
                    if self._failures >= _MOST_FAILURES:
                        raise
                    self._notices.tell(f"{_words(error)}; the store goes on")
                    time.sleep(_SHORTAGE_PAUSE_S)
        except BaseException as error:
            self.failure = f"the store of rank 0 has ended: {_words(error)}"
            self._notices.tell(self.failure, always=True)
        finally:
            self._end()

    def _round(self) -> None:
        now = time.monotonic()
        self._listen_again(now)
        comes = False
        for key, events in self._selector.select(self._pause_s(now)):
            if isinstance(key.data, Session):
                self._serve(key.data, events)
            comes |= key.fileobj is self._door.listener
        self._board.expire(time.monotonic())
        self._settle()
        # Last, so that clients that have greeted by now are not strangers when room is made.
        if comes and self._users > 0:
            self._accept()
            self._settle()
        if self._board.refused > self._refused:
            self._refused = self._board.refused
            mib = self._board.limits.value_bytes >> 20
            self._notices.tell(f"a value was refused: {mib} MiB of keys and values are kept at most")

    def _pause_s(self, now: float) -> float | None:
        until = self._board.next_timer()
        if not self._is_listening:
            until = min(until, self._listens_from)
        return None if math.isinf(until) else max(0.0, until - now)

    def _serve(self, session: Session, events: int) -> None:
        """Read and write as much as possible. An error ends this client alone."""
        try:
            if events & selectors.EVENT_WRITE:
                self._write(session)
            if events & selectors.EVENT_READ:
                self._read(session)
        except OSError:
            self._board.close(session)  # the client is gone
        except Exception as error:
            self._board.close(session)
            self._notices.tell(f"a client was hung up on: {_words(error)}")

    def _read(self, session: Session) -> None:
        connection = self._clients[session]
        for _ in range(_CHUNKS_AT_ONCE):
            if session.wanted == 0:
                return
            try:
                data = connection.recv(min(session.wanted, _CHUNK_BYTES))
            except BlockingIOError:
                return
            if not data:
                self._board.close(session)
                return
            self._board.take(session, data, time.monotonic())
            if session.output:
                self._write(session)

    def _write(self, session: Session) -> None:
        connection = self._clients[session]
        while session.output:
            try:
                count = connection.sendmsg(session.output)
            except BlockingIOError:
                return
            self._board.sent(session, count, time.monotonic())

    def _settle(self) -> None:
        """Apply the board's changes to the sockets: close ended conversations, and send output."""
        while touched := self._board.touched():
            for session in touched:
                if session.output and session in self._clients:
                    self._serve(session, selectors.EVENT_WRITE)
                if session.phase is Phase.CLOSED:
                    self._drop(session)
                elif session in self._clients:
                    try:
                        self._watch(session)
                    except OSError:
                        self._board.close(session)

    def _watch(self, session: Session) -> None:
        wanted = selectors.EVENT_WRITE if session.output else selectors.EVENT_READ
        connection = self._clients[session]
        if self._selector.get_key(connection).events != wanted:
            self._selector.modify(connection, wanted, session)

    def _drop(self, session: Session) -> None:
        connection = self._clients.pop(session, None)
        if connection is not None:
            with contextlib.suppress(OSError, KeyError, ValueError):
                self._selector.unregister(connection)
            if not session.greeted:
                with contextlib.suppress(OSError):  # so that the kernel, too, keeps nothing of strangers
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

    # ---- new clients

    def _listen_again(self, now: float) -> None:
        if not self._is_listening and now >= self._listens_from:
            self._selector.register(self._door.listener, selectors.EVENT_READ)
            self._is_listening = True
            self._door.keep_spare()

    def _rest(self, seconds: float) -> None:
        if self._is_listening:
            self._selector.unregister(self._door.listener)
            self._is_listening = False
        self._listens_from = time.monotonic() + seconds

    def _accept(self) -> None:
        evicted = self._board.evicted
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                client = self._door.accept()
            except OSError as error:
                if self._users == 0:
                    return  # leave() has freed the port
                if error.errno in SHORTAGES:
                    self._in_want(error)
                    return
                self._rest(_SHORTAGE_PAUSE_S)
                raise
            if client is None:
                break
            self._admit(*client)
            self._settle()  # at once, so that the descriptors of closed clients are free for the next one
            if not self._is_listening:
                return
        if self._board.evicted > evicted:
            self._notices.tell(
                f"more than {self._board.limits.strangers} connections to port {self.port} say nothing, most "
                f"of them from {self._board.crowded_source()}; the oldest are hung up on"
            )
            self._rest(_FLOOD_PAUSE_S)

    def _admit(self, connection: socket.socket, source: str) -> None:
        session = self._board.open(source, time.monotonic())
        self._clients[session] = connection
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # for hosts that vanish
            self._selector.register(connection, selectors.EVENT_READ, session)
        except OSError as error:
            self._board.close(session)
            if error.errno in SHORTAGES:
                self._in_want(error)
            return
        # A client that greeted while it waited in the queue is not a stranger. It must not be closed for the next.
        self._serve(session, selectors.EVENT_READ)

    def _in_want(self, error: OSError) -> None:
        """Make room: the process or the machine has no descriptor or memory for one more connection."""
        if self._board.evict(strangers_only=True):
            self._rest(_FLOOD_PAUSE_S)
        else:
            self._door.turn_one_away()
            self._rest(_SHORTAGE_PAUSE_S)
        self._notices.tell(
            f"no connection more can be accepted at port {self.port} ({os.strerror(error.errno or 0)}); the store "
            f"has {self._board.clients}. It goes on when others are closed; `ulimit -n` says how many there may be"
        )

    def _end(self) -> None:
        with self._lock, contextlib.ExitStack() as last:
            last.callback(self._ended.set)
            self._door.shut()
            self._door.close()
            for connection in self._clients.values():
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()
            self._clients.clear()
            self._selector.close()
            os.close(self._wake)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

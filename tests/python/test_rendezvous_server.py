# SPDX-License-Identifier: Apache-2.0
"""The rendezvous server among strangers and shortages, and its client before what is no server."""

import contextlib
import errno
import gc
import os
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator

import braid
import pytest
from braid._array.rendezvous import server as server_module
from braid._array.rendezvous.board import Limits
from braid._array.rendezvous.door import Door
from braid._array.rendezvous.protocol import GET, GREETING, NO_TOKEN, REPLY, REQUEST, SET, VALUE
from braid._array.rendezvous.server import Server
from braid._array.rendezvous.tcp import TcpStore
from slowness import limit
from waiting import eventually

pytestmark = pytest.mark.unit

HERE = "127.0.0.1"
SOON_S = limit(8.0)


@contextlib.contextmanager
def serving(**limits: float) -> Iterator[Server]:
    server = Server(HERE, 0, limits=Limits(**limits))  # type: ignore[arg-type]
    try:
        yield server
    finally:
        server.leave()


def client_of(server: Server, timeout_s: float = 30) -> TcpStore:
    return TcpStore([HERE], server.port, timeout_s=timeout_s)


def check(server: Server) -> None:
    store = client_of(server)
    store.set("key", b"value")
    assert store.get("key", 30) == b"value"
    store.close()


def greeted(server: Server) -> socket.socket:
    connection = socket.create_connection((HERE, server.port))
    connection.settimeout(30)
    connection.sendall(GREETING + NO_TOKEN)
    assert connection.recv(100) == GREETING
    return connection


def is_hung_up(connection: socket.socket, within_s: float) -> bool:
    connection.settimeout(within_s)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


# A process of its own, for its descriptors are few. Silent strangers take all that the server allows; then nothing
# is left for it at all, and later there is again.
FEW_DESCRIPTORS = """
    import os, resource, socket, sys, time
    from braid._array.rendezvous.server import Server
    from braid._array.rendezvous.tcp import TcpStore

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    server = Server("127.0.0.1", 0)
    print(server.port, flush=True)
    sys.stdin.readline()
    taken = []
    for _ in range(20):  # those, too, that the server lets go of now
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            time.sleep(0.05)
    print("taken", flush=True)
    sys.stdin.readline()
    for descriptor in taken:
        os.close(descriptor)
    print("freed", flush=True)
    sys.stdin.readline()
"""


def test_neither_silent_strangers_nor_want_of_descriptors_end_the_server() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(FEW_DESCRIPTORS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        strangers = [socket.create_connection((HERE, port)) for _ in range(200)]
        store = TcpStore([HERE], port, timeout_s=30)
        store.set("key", b"value")
        store.close()
        assert is_hung_up(strangers[0], 30)
        for stranger in strangers:
            stranger.close()

        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "taken\n"
        turned_away = socket.create_connection((HERE, port))
        assert is_hung_up(turned_away, 30)
        with pytest.raises(braid.CommunicatorTimeoutError):
            TcpStore([HERE], port, timeout_s=0.3).get("key", 0.1)

        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "freed\n"
        store = TcpStore([HERE], port, timeout_s=30)
        assert store.get("key", 30) == b"value"
        _, told = process.communicate("\n", timeout=limit(60))
    assert "connections to port" in told
    assert len(told.splitlines()) == 1, told  # a line a minute, however much there is to tell


def test_no_descriptor_is_left_behind() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    gc.collect()  # else what earlier tests left may be closed meanwhile
    before = descriptors()
    with serving(clients=8, strangers=4) as server:
        for _ in range(50):
            socket.create_connection((HERE, server.port)).close()
        check(server)
        assert descriptors() <= before + 4 + 8 + 1  # the server's own, its clients, and one that makes room
    eventually(lambda: descriptors() <= before, descriptors)


def test_who_is_late_is_hung_up_on_and_a_member_may_be_idle() -> None:
    with serving(greeting_s=3, request_s=3) as server:
        member = greeted(server)
        silent = socket.create_connection((HERE, server.port))
        half = greeted(server)
        half.sendall(REQUEST.pack(SET, 3, 1000, 0) + b"key")
        assert is_hung_up(silent, 20)
        assert is_hung_up(half, 20)
        assert not is_hung_up(member, 0.5)
        check(server)


def test_who_does_not_read_is_hung_up_on() -> None:
    with serving(answer_s=1) as server:
        store = client_of(server)
        store.set("key", bytes(1 << 20))
        lazy = socket.socket()
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect((HERE, server.port))
        lazy.sendall(GREETING + NO_TOKEN)
        question = REQUEST.pack(GET, 3, 0, 1) + b"key"
        for _ in range(20):  # answers to these would fill what the kernel takes
            lazy.sendall(question)
        deadline = time.monotonic() + 60
        with contextlib.suppress(OSError):
            while time.monotonic() < deadline:
                time.sleep(0.1)
                lazy.sendall(question[:1])
        assert time.monotonic() < deadline
        assert store.get("key", 30) == bytes(1 << 20)
        store.close()


def test_a_full_store_refuses_and_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with serving(value_bytes=1 << 20) as server:
        store = client_of(server)
        store.set("first", bytes(1 << 19))
        with pytest.raises(braid.CommunicatorError, match="refuses 'second': it is full: it keeps 1 MiB"):
            store.set("second", bytes(1 << 19))
        store.set("first", b"smaller")
        store.set("third", bytes(1 << 19))
        with pytest.raises(braid.CommunicatorError, match="'fourth' has a value of 1048577"):
            store.set("fourth", bytes((1 << 20) + 1))
        store.close()
    assert "a value was refused: 1 MiB" in capfd.readouterr().err


def test_more_clients_than_connections_get_on() -> None:
    found: list[bytes] = []

    def wait() -> None:
        store = client_of(server, 30)
        found.append(store.get("late", 60))
        store.close()

    with serving(clients=4, strangers=2) as server:
        threads = [threading.Thread(target=wait) for _ in range(10)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        store = client_of(server, 30)
        store.set("late", b"here")
        for thread in threads:
            thread.join(limit(100))
        store.close()
    assert found == [b"here"] * 10


def test_an_error_in_the_loop_harms_one_client_at_most(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving() as server:
        take = server._board.take

        def fail(session: object, data: bytes, now: float) -> None:
            if b"bad key" in data:
                raise MemoryError
            take(session, data, now)  # type: ignore[arg-type]

        monkeypatch.setattr(server._board, "take", fail)
        bad = greeted(server)
        bad.sendall(REQUEST.pack(SET, 7, 0, 0) + b"bad key")
        assert is_hung_up(bad, 30)
        check(server)
    assert capfd.readouterr().err == "braid store: a client was hung up on: MemoryError\n"


def test_a_server_that_cannot_go_on_tells_all_its_users(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server_module, "_SHORTAGE_PAUSE_S", 0.001)
    server = Server(HERE, 0)
    port = server.port
    own = TcpStore([HERE], port, timeout_s=30, server=server)
    own.set("key", b"value")
    waiting = greeted(server)

    def fail(self: Door) -> None:
        raise OSError(errno.EINVAL, "no good")

    monkeypatch.setattr(Door, "accept", fail)
    with contextlib.suppress(OSError):
        socket.create_connection((HERE, port)).close()
    assert is_hung_up(waiting, 30)
    begun = time.monotonic()
    with pytest.raises(braid.CommunicatorError, match=r"the store of rank 0 has ended: OSError: .*no good"):
        own.get("other", 20)
    with pytest.raises(braid.CommunicatorTimeoutError, match="rank 0 does not listen"):
        TcpStore([HERE], port, timeout_s=0.3).get("key", 0.1)
    assert time.monotonic() - begun < SOON_S
    assert not server.share()
    own.close()
    assert "the store of rank 0 has ended" in capfd.readouterr().err


def test_a_forked_child_neither_serves_nor_holds_the_port() -> None:
    server = Server(HERE, 0)
    connection = greeted(server)
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        server.leave()
        os.write(ready[1], b"." if not server.share() else b"!")
        os.read(go[0], 1)
        os._exit(0)
    try:
        assert os.read(ready[0], 1) == b"."
        check(server)  # the child has taken nothing out of the parent's selector
        connection.sendall(REQUEST.pack(SET, 0, 0, 0))
        assert connection.recv(REPLY.size) == REPLY.pack(0, 0)
        server.leave()
        assert is_hung_up(connection, 30)
        again = Server(HERE, server.port)
        check(again)
        again.leave()
    finally:
        os.write(go[1], b".")
        os.waitpid(child, 0)
        for descriptor in (*ready, *go):
            os.close(descriptor)


# ---- the client before what is no server of ours


@contextlib.contextmanager
def answering(answers: Callable[[socket.socket], None]) -> Iterator[int]:
    with socket.create_server((HERE, 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.recv(32)
                        answers(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(limit(10))


@pytest.mark.parametrize("reply", [REPLY.pack(VALUE, 0xFFFFFFFF), struct.pack("!BI", 7, 1)])
def test_an_answer_of_4_gib_is_refused_before_it_is_awaited(reply: bytes) -> None:
    def answers(connection: socket.socket) -> None:
        connection.sendall(GREETING)
        connection.recv(100)
        connection.sendall(reply)
        connection.recv(1)

    with answering(answers) as port, pytest.raises(braid.CommunicatorError, match="gives answers that rank 0"):
        TcpStore([HERE], port, timeout_s=30).get("key", 1)


def test_an_answer_that_comes_in_drops_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braid._array.rendezvous.tcp._ANSWER_TIME_S", 0.5)

    def answers(connection: socket.socket) -> None:
        connection.sendall(GREETING)
        connection.recv(100)
        connection.sendall(REPLY.pack(VALUE, 1000))
        for _ in range(100):
            connection.sendall(b".")
            time.sleep(0.1)

    with answering(answers) as port:
        begun = time.monotonic()
        with pytest.raises(braid.CommunicatorTimeoutError, match="does not listen"):
            TcpStore([HERE], port, timeout_s=0.4).get("key", 0.1)
        assert time.monotonic() - begun < SOON_S


def test_another_version_is_named_on_both_sides() -> None:
    other = GREETING.replace(b"2", b"3")
    named = pytest.raises(braid.CommunicatorError, match="speaks version 3 while ours speaks 2: install the same")
    with answering(lambda connection: connection.sendall(other)) as port, named:
        TcpStore([HERE], port, timeout_s=30).get("key", 1)
    with serving() as server, socket.create_connection((HERE, server.port)) as foreigner:
        foreigner.settimeout(30)
        foreigner.sendall(other + NO_TOKEN)
        assert foreigner.recv(100) == GREETING  # from which it can tell
        assert foreigner.recv(100) == b""

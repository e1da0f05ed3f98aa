# SPDX-License-Identifier: Apache-2.0
"""All ranks of one contestant, as the coordinator holds them."""

import contextlib
import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any, Self

from braid._bench.ranks.serve import serve
from braid.lab import Host
from braid.lab.namespaces import children_of, send_signal

Place = tuple[Host, dict[str, str]]  # and what is added to the environment there
START_TIMEOUT_S = 120.0
CLOSE_TIMEOUT_S = 5.0
_LOG_LINES = 3


class TeamError(Exception):
    """A contestant's ranks cannot go on; the message says why, in one line."""


@dataclass(frozen=True)
class Recipe:
    """How the ranks of a contestant come to be."""

    name: str
    maker: str  # "module:Class"; called with rank, size and folder unless there is a launcher, and with settings
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    rank_environments: tuple[dict[str, str], ...] = ()  # more of it, by rank
    places: tuple[Place, ...] = ()  # by rank, where each runs in a lab; without any, here
    servers: tuple[Place, ...] = ()  # where an aggregator helps each of a lab's ranks
    servers_join: str = ""  # the store where they meet; "{folder}" is the team's own
    launcher: tuple[str, ...] = ()  # mpirun and its options; without one ranks are forked
    launcher_environment: dict[str, str] = field(default_factory=dict)  # "{folder}" is the team's own folder


class Team:
    """Started ranks, which answer in step. A team that failed once is closed, and stays so."""

    def __init__(self, recipe: Recipe, size: int, workplace: Path) -> None:
        """Start the ranks and make their objects; TeamError when that fails."""
        self.name, self.size = recipe.name, size
        self.failure = ""
        self._asked = False
        self._folder = workplace / recipe.name
        self._folder.mkdir()
        self._log = self._folder / "log"
        self._forked: list[multiprocessing.process.BaseProcess] = []
        self._launched: subprocess.Popen[bytes] | None = None
        self._placed: list[subprocess.Popen[bytes]] = []
        self._servers: list[subprocess.Popen[bytes]] = []
        self._ranks: list[Connection] = []
        self._pids: dict[int, int] = {}
        try:
            self._start(recipe)
        except TeamError:
            raise
        except BaseException:
            self._kill()
            raise

    def ask(self, method: str, *arguments: Any, timeout_s: float = 60.0) -> list[Any]:
        """Have every rank call a method of its object, at once; return the answers by rank.

        Raises:
            TeamError: a rank raised, ended, or did not answer in time. The team is over then.
        """
        if self.failure:
            raise TeamError(self.failure)
        self._asked = True
        try:
            for connection in self._ranks:
                connection.send((method, arguments))
        except OSError:
            pass  # it has ended; collecting says how
        answers = self._collect(method, timeout_s)
        self._asked = False
        return answers

    def servers_lost(self) -> int:
        """Return how many aggregators have ended; ranks that are not closed go on without them."""
        return sum(server.poll() is not None for server in self._servers)

    def close(self) -> None:
        """End the ranks: asked first, then made to; at once when an answer is still owed, as after Ctrl-C."""
        if self._asked:
            self._kill()
            return
        if not self.failure:
            with contextlib.suppress(TeamError):
                self.ask("close", timeout_s=CLOSE_TIMEOUT_S)
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        for process in self._forked:
            process.join(max(0.0, deadline - time.monotonic()))
        for started in filter(None, [self._launched, *self._placed, *self._servers]):
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(max(0.0, deadline - time.monotonic()))
        self._kill()

    def __enter__(self) -> Self:
        """Return the team, which is closed at the end of the block."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close."""
        self.close()

    # ---- start

    def _start(self, recipe: Recipe) -> None:
        address = str(self._folder / "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(self.size)
            if recipe.launcher:
                self._launch(recipe, address)
            elif recipe.places:
                self._place(recipe, address)
            else:
                self._fork(address)
            self._accept(listener)
        for rank, connection in enumerate(self._ranks):
            settings, environment = dict(recipe.settings), dict(recipe.environment)
            if recipe.rank_environments:
                environment |= recipe.rank_environments[rank]
            if not recipe.launcher:
                settings |= {"rank": rank, "size": self.size, "folder": str(self._folder)}
            connection.send((recipe.maker, settings, environment))
        answers = self._collect("start", START_TIMEOUT_S)
        numbers = [rank for rank, _ in answers]
        if sorted(numbers) != list(range(self.size)):
            raise self._fail(f"its {self.size} processes came up as ranks {numbers}: is this the right launcher?")
        connections = dict(zip(numbers, self._ranks, strict=True))
        self._ranks = [connections[rank] for rank in range(self.size)]
        self._pids = dict(answers)

    def _fork(self, address: str) -> None:
        context = multiprocessing.get_context("forkserver")
        for rank in range(self.size):
            process = context.Process(target=_serve_forked, args=(address, str(self._log)), daemon=True)
            process.name = f"{self.name}-{rank}"
            process.start()
            self._forked.append(process)

    def _launch(self, recipe: Recipe, address: str) -> None:
        command = [
            *recipe.launcher,
            "-n",
            str(self.size),
            sys.executable,
            "-m",
            "braid._bench.ranks.serve",
            address,
        ]
        own = {name: value.format(folder=self._folder) for name, value in recipe.launcher_environment.items()}
        environment = {**os.environ, **recipe.environment, **own}
        with self._log.open("wb") as log:
            self._launched = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _place(self, recipe: Recipe, address: str) -> None:
        with self._log.open("wb") as log:
            for host, own in recipe.places:
                command = [sys.executable, "-m", "braid._bench.ranks.serve", address]
                environment = {**os.environ, **own, **recipe.environment}
                self._placed.append(_start_at(host, command, environment, log))
            join = recipe.servers_join.format(folder=self._folder)
            for host, own in recipe.servers:
                command = [sys.executable, "-m", "braid.cli", "aggregator", "--join", join]
                self._servers.append(_start_at(host, command, {**os.environ, **own}, log))

    def _accept(self, listener: socket.socket) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        listener.settimeout(0.2)
        callers: dict[int, Connection] = {}  # by process
        while len(callers) < self.size:
            try:
                accepted, _ = listener.accept()
                accepted.setblocking(True)
                caller = struct.unpack("3i", accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
                callers[caller] = Connection(accepted.detach())
                self._ranks.append(callers[caller])
            except TimeoutError:
                if ended := self._how_it_ended():
                    raise self._fail(ended) from None
                if time.monotonic() > deadline:
                    raise self._fail(f"did not start in {START_TIMEOUT_S:.0f} s") from None
        if self._placed:  # who runs where is settled
            try:
                self._ranks = [callers[children_of(placed.pid)[0]] for placed in self._placed]
            except LookupError:
                raise self._fail(self._how_it_ended() or "a rank ended while it started") from None

    # ---- answers

    def _collect(self, what: str, timeout_s: float) -> list[Any]:
        deadline = time.monotonic() + timeout_s
        answers: dict[int, Any] = {}
        waiting = {id(connection): rank for rank, connection in enumerate(self._ranks)}
        while waiting:
            left = [connection for connection in self._ranks if id(connection) in waiting]
            ready = [c for c in wait(left, max(0.0, deadline - time.monotonic())) if isinstance(c, Connection)]
            if not ready:
                silent = ", ".join(map(str, sorted(waiting.values())))
                raise self._fail(f"no answer to {what!r} from rank {silent} in {timeout_s:.0f} s")
            for connection in ready:
                rank = waiting.pop(id(connection))
                try:
                    good, answers[rank] = connection.recv()
                except (EOFError, OSError):
                    raise self._fail(self._how_rank_ended(rank)) from None
                if not good:
                    raise self._fail(answers[rank])
        return [answers[rank] for rank in range(len(self._ranks))]

    def _fail(self, reason: str) -> TeamError:
        self.failure = reason
        self._kill()
        return TeamError(reason)

    def _how_rank_ended(self, rank: int) -> str:
        code = None
        for process in self._forked:
            if process.pid == self._pids.get(rank):
                process.join(1)
                code = process.exitcode
        return f"rank {rank} ended{_status(code)}{self._last_lines()}"

    def _how_it_ended(self) -> str:
        if self._launched and self._launched.poll() is not None:
            return f"ended{_status(self._launched.returncode)} before it started{self._last_lines()}"
        for rank, placed in enumerate(self._placed):
            if placed.poll() is not None:
                return f"rank {rank} ended{_status(placed.returncode)} before it started{self._last_lines()}"
        for number, server in enumerate(self._servers):
            if server.poll() is not None:
                return f"server {number} ended{_status(server.returncode)} before it started{self._last_lines()}"
        for rank, process in enumerate(self._forked):
            if process.exitcode is not None:
                return f"rank {rank} ended{_status(process.exitcode)} before it started{self._last_lines()}"
        return ""

    def _last_lines(self) -> str:
        with contextlib.suppress(OSError):
            lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
            lines = [line for line in lines if line.strip("-=* ")]
            if lines:
                return ": " + " / ".join(lines[-_LOG_LINES:])
        return ""

    # ---- end

    def _kill(self) -> None:
        for process in self._forked:
            if process.is_alive():
                process.kill()
            process.join()
        for placed in [*self._placed, *self._servers]:
            if placed.poll() is None:
                send_signal(placed, signal.SIGKILL)
                placed.wait()
        if self._launched and self._launched.poll() is None:
            self._launched.terminate()  # mpirun takes its ranks and its segments with it
            try:
                self._launched.wait(CLOSE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._launched.pid, signal.SIGKILL)
                self._launched.wait()
        # Last: a rank that is still there when its connection ends takes the coordinator for dead, and tidies up.
        for connection in self._ranks:
            connection.close()


def _start_at(
    host: Host, command: list[str], environment: dict[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes]:
    return host.start(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )


def _status(code: int | None) -> str:
    if code is None:
        return ""
    return f" with exit code {code}" if code >= 0 else f" ({signal.Signals(-code).name})"


def _serve_forked(address: str, log: str) -> None:
    try:
        with Path(log).open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    except FileNotFoundError:
        os._exit(0)  # started when all was over already
    serve(address)

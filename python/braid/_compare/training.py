# SPDX-License-Identifier: Apache-2.0
"""One job of ``braid compare``: the ranks of one way to train, which train only when they are told to."""

import contextlib
import select
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from braid._compare.messages import Channel, Order, Report, Step
from braid._compare.places import Places
from braid._compare.ways import Way
from braid._notices import how_it_ended
from braid.lab import Job

_LOOK_S = 0.25
_STALLED_S = 5.0
_GONE_S = 10.0
_LAST_LINES = 12


class TrainingError(Exception):
    """A job that cannot go on; the text says why."""


class Training:
    """The job of one way.

    Attributes:
        way: how it trains.
        steps: of each rank, all of them.
        has_ended: whether the script of a rank has returned.
        gradient_bytes: bytes of all gradients, as float32.
        algorithm: of rank 0, as Report has it.
        is_in_step: whether some that had paused kept others waiting: these workers must take equal steps.
    """

    def __init__(self, way: Way, places: Places, command: list[str], environment: dict[str, str]) -> None:
        """Start its ranks. They wait before the script's first line until train() is called."""
        self.way = way
        self.steps: list[list[Step]] = [[] for _ in range(places.ranks)]
        self.has_ended, self.gradient_bytes, self.algorithm, self.is_in_step = False, 0, "", False
        # Not TMPDIR, which may be long: a socket's path has 107 bytes at most.
        self._folder = tempfile.mkdtemp(prefix="braid-compare-", dir="/tmp")
        path = str(Path(self._folder) / "socket")
        self._own: contextlib.ExitStack = contextlib.ExitStack()
        self._own.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self._channels: dict[int, Channel] = {}
        self._log: IO[bytes] = self._own.enter_context((Path(self._folder) / "log").open("w+b"))
        self._listener = self._own.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        try:
            self._listener.bind(path)
            self._listener.listen(places.ranks)
            whole = [sys.executable, "-m", "braid._compare.rank", path, *command]
            self._job = self._own.enter_context(
                Job(
                    places.of_next_job(),
                    whole,
                    env={**environment, **way.environment},
                    stdout=self._log,
                    stderr=self._log,
                )
            )
        except BaseException:
            self._own.close()
            raise

    def train(self, order: Order, said: Callable[[], None]) -> None:
        """Let all ranks train, and wait until all pause or their scripts end.

        Args:
            order: for so many steps, or for so many seconds.
            said: called some times in a second.

        Raises:
            TrainingError: a rank has failed.
        """
        self._meet(said)
        for channel in self._channels.values():
            self._send(channel, order)
        training = dict(self._channels)
        since, stalls = time.monotonic(), 0
        while training:
            said()
            for rank in self._ready(training):
                if self._take(training[rank]).has_ended:
                    self.has_ended = True
                del training[rank]
                since = time.monotonic()
            self._look_for_failures()
            is_stalled = time.monotonic() - since > max(_STALLED_S, 2 * order.seconds)
            if training and order.seconds and is_stalled and not self.has_ended:
                self._go_on(training, 2**stalls)
                since, stalls, self.is_in_step = time.monotonic(), stalls + 1, True

    def end(self) -> None:
        """Let all ranks end. Idempotent."""
        for channel in self._channels.values():
            with contextlib.suppress(OSError):
                channel.send(Order())
        for channel in self._channels.values():
            channel.close()
        self._channels = {}
        self._own.close()

    def _go_on(self, training: dict[int, Channel], steps: int) -> None:
        # Some that have paused keep others waiting, who cannot pause so: in the script's own collective, say.
        for rank, channel in self._channels.items():
            if rank not in training:
                self._send(channel, Order(steps=steps))
                training[rank] = channel

    def _meet(self, said: Callable[[], None]) -> None:
        while len(self._channels) < len(self._job.ranks):
            said()
            self._look_for_failures()
            if select.select([self._listener], [], [], _LOOK_S)[0]:
                channel = Channel(self._listener.accept()[0])
                self._channels[self._take(channel).rank] = channel

    def _ready(self, training: dict[int, Channel]) -> list[int]:
        found = select.select(list(training.values()), [], [], _LOOK_S)[0]
        return [rank for rank, channel in training.items() if channel in found]

    def _take(self, channel: Channel) -> Report:
        try:
            report = channel.report()
        except EOFError:
            deadline = time.monotonic() + _GONE_S
            while time.monotonic() < deadline:  # it is about to end, and its exit code says more
                self._look_for_failures()
                if 0 in self._job.poll():  # a script may end by os._exit(0)
                    return Report(-1, [], has_ended=True)
                time.sleep(_LOOK_S)
            raise TrainingError(f"{self.way.name}: a rank left without a word\n{self._last_lines()}") from None
        self.steps[report.rank] += report.steps
        self.gradient_bytes = max(self.gradient_bytes, report.gradient_bytes)
        if report.rank == 0 and report.algorithm:
            self.algorithm = report.algorithm
        return report

    def _send(self, channel: Channel, order: Order) -> None:
        with contextlib.suppress(OSError):  # it has ended: _look_for_failures() says how
            channel.send(order)

    def _look_for_failures(self) -> None:
        if self.way.is_rival and self.has_ended:  # processes of Gloo abort now and then at their end
            return
        for rank in self._job.failures():
            code = self._job.ranks[rank].returncode
            raise TrainingError(f"{self.way.name}: rank {rank} {how_it_ended(code)}\n{self._last_lines()}")

    def _last_lines(self) -> str:
        self._log.flush()
        lines = Path(self._log.name).read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-_LAST_LINES:]) or "  it printed nothing"

    def __enter__(self) -> Self:
        """Return the job, which ends with the block."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End."""
        self.end()

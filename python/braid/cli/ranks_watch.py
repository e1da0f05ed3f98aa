# SPDX-License-Identifier: Apache-2.0
"""Watches the ranks that ``braid run`` starts: the order in which they end, and nodes that do not come.

torch's launcher looks at its ranks ten times a second and notes whole seconds, so it cannot tell who ended first.
"""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from braid._notices import how_it_ended, tell

_LOOK_MS = 100
_MOST_NAMED = 8


class Failure(Protocol):
    """What torch's ProcessFailure says of a rank."""

    pid: int
    exitcode: int
    timestamp: int


class RanksWatch:
    """Notes the order in which children of this process end that begin in its block.

    Attributes:
        ended: process ids, the first that ended first.
    """

    def __init__(self, waiting: str = "", after_s: float = 0.0) -> None:
        """Prepare.

        Args:
            waiting: the line to tell if no child has begun after some time; "" for none.
            after_s: that time in seconds; 0 for never.
        """
        self.ended: list[int] = []
        self._waiting, self._after_s = waiting, after_s
        # Some kernels have no such file. Then nothing is watched.
        self._children = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children")
        self._thread = threading.Thread(target=self._run, name="braid-ranks", daemon=True)

    def __enter__(self) -> Self:
        """Begin. Children that run already are not watched."""
        self._over, self._stop = os.pipe()
        self._known = self._now()
        if self._children.exists():
            self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End, after noting those that have ended."""
        os.close(self._stop)
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._over)

    def _now(self) -> set[int]:
        try:
            return {int(pid) for pid in self._children.read_text().split()}
        except OSError:
            return set()

    def _run(self) -> None:
        began, ranks, has_told = time.monotonic(), 0, not self._waiting or self._after_s == 0
        poller, is_over = select.poll(), False
        pids: dict[int, int] = {}  # by descriptor
        poller.register(self._over, select.POLLIN)
        while not is_over:
            for pid in sorted(self._now() - self._known):
                self._known.add(pid)
                ranks += 1
                with contextlib.suppress(OSError):  # it has been reaped, or the kernel is older than 5.3
                    descriptor = os.pidfd_open(pid)
                    pids[descriptor] = pid
                    poller.register(descriptor, select.POLLIN)
            if not has_told and not ranks and time.monotonic() - began > self._after_s:
                tell(self._waiting)
                has_told = True
            for descriptor, _ in poller.poll(_LOOK_MS):
                if descriptor == self._over:
                    is_over = True
                else:
                    self.ended.append(pids.pop(descriptor))
                    poller.unregister(descriptor)
                    os.close(descriptor)
        for descriptor in pids:
            os.close(descriptor)


def in_order(failures: Mapping[int, Failure], ended: list[int]) -> list[int]:
    """Return the ranks that failed, the one that ended first first, without those that torch ended for that.

    Args:
        failures: by rank, as torch's ChildFailedError has them.
        ended: process ids in the order of their end, as far as it is known.
    """
    place = {pid: number for number, pid in enumerate(ended)}
    ranks = sorted(
        failures,
        key=lambda rank: (place.get(failures[rank].pid, len(place)), failures[rank].timestamp, rank),
    )
    return [rank for rank in ranks if rank == ranks[0] or failures[rank].exitcode != -signal.SIGTERM]


def words(failures: Mapping[int, Failure], ranks: list[int]) -> str:
    """Return the line about ranks that failed, in the order of `ranks`.

    Example:
        rank 1 (process 4712) ended with exit code 3; then rank 0 (process 4711) with exit code 1
    """
    parts = [
        f"rank {rank} (process {failures[rank].pid}) {how_it_ended(failures[rank].exitcode)}"
        for rank in ranks[:_MOST_NAMED]
    ]
    more = f"; then {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    return "; then ".join(parts) + more

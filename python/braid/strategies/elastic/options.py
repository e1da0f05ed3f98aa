# SPDX-License-Identifier: Apache-2.0
"""The options of elastic averaging, checked, and as text that all workers compare."""

import math
from dataclasses import dataclass
from typing import ClassVar

from braid.strategies.options import BUFFERS

# Name -> mode and consistency of the servers.
AT_SERVERS = {
    "round_robin": ("round_robin", "atomic"),
    "first_come": ("async", "atomic"),
    "hogwild": ("async", "relaxed"),
}
COLLECTIVE = ("sync1", "sync2", "sync3")
SCHEDULES = (*AT_SERVERS, *COLLECTIVE)
DEFAULT_BETA = 0.9
OVERLAPPED = "sync3"


@dataclass(frozen=True)
class ElasticOptions:
    """How workers and the centre pull at each other; ElasticAverage explains each option."""

    schedule: str = "first_come"
    sync_every: int = 10
    alpha: float | None = None
    beta: float | None = None
    overlap: int | None = None
    buffers: str = "average"
    root: int | None = None
    init_sync: bool = True

    # Workers may differ in these.
    OWN: ClassVar = ()

    def check(self, *, has_servers: bool = False, is_late: bool = False) -> None:
        """Raise ValueError if an option has no such value, or does not fit another.

        Args:
            has_servers: servers= was given.
            is_late: this worker joins others that have begun.
        """
        if self.schedule not in SCHEDULES:
            raise ValueError(
                f"schedule {self.schedule!r}: there is none of that name; there are {', '.join(SCHEDULES)}"
            )
        if not isinstance(self.sync_every, int) or self.sync_every < 1:
            raise ValueError(f"sync_every={self.sync_every}: a whole number of steps, at least 1")
        self._check_strength()
        if self.buffers not in BUFFERS:
            raise ValueError(f"buffers {self.buffers!r}: there are {', '.join(BUFFERS)}")
        self._check_overlap()
        if self.is_collective:
            if has_servers:
                raise ValueError(f"servers= is for schedules with servers: {', '.join(AT_SERVERS)}")
            if is_late:
                raise ValueError(
                    f"join= is for schedules that do not wait for all: in {self.schedule!r} all begin together"
                )
        if self.root is not None and self.schedule not in ("sync2", "sync3"):
            raise ValueError(f"root= is for the schedules sync2 and sync3, not for {self.schedule!r}")

    def _check_strength(self) -> None:
        if self.alpha is not None and self.beta is not None:
            raise ValueError("alpha= and beta= say the same: beta is alpha times the number of workers; give one")
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name}={value}: a finite number, at least 0")
        if self.alpha is not None and self.alpha > 1:
            raise ValueError(f"alpha={self.alpha}: at most 1, which moves a worker onto the centre")

    def _check_overlap(self) -> None:
        if self.overlap is None:
            return
        least = int(self.schedule == OVERLAPPED)
        if self.schedule in ("sync1", "sync2") and self.overlap:
            raise ValueError(
                f"overlap= is not for {self.schedule!r}: the schedule that overlaps is {OVERLAPPED!r}"
            )
        if not isinstance(self.overlap, int) or not least <= self.overlap <= self.sync_every:
            raise ValueError(
                f"overlap={self.overlap}: a whole number of steps from {least} to sync_every ({self.sync_every})"
            )

    @property
    def is_collective(self) -> bool:
        """Whether all workers meet in each round."""
        return self.schedule in COLLECTIVE

    @property
    def lead(self) -> int:
        """How many steps before its use an exchange begins."""
        return int(self.schedule == OVERLAPPED) if self.overlap is None else self.overlap

    @property
    def mode(self) -> str:
        """The order in which servers take workers; for schedules with servers."""
        return AT_SERVERS[self.schedule][0]

    @property
    def consistency(self) -> str:
        """Whether servers apply updates under a lock ("atomic") or not ("relaxed")."""
        return AT_SERVERS.get(self.schedule, ("", "atomic"))[1]

    def strength(self, workers: int) -> float:
        """Return alpha: which part of the way between worker and centre each of both goes.

        Raises:
            ValueError: beta is more than the number of workers.
        """
        if self.alpha is not None:
            return self.alpha
        beta = DEFAULT_BETA if self.beta is None else self.beta
        if beta > workers:
            raise ValueError(f"beta={beta}: at most the number of workers, which is {workers}")
        return beta / workers

    def check_workers(self, workers: int) -> None:
        """Raise ValueError if an option does not fit so many workers; 0: a late worker, which does not know."""
        if not workers:
            return
        self.strength(workers)
        if self.root is not None and not 0 <= self.root < workers:
            raise ValueError(f"root={self.root}: a rank from 0 to {workers - 1}")

    def describe(self) -> list[str]:
        """Return one line for each option that must be the same on all workers."""
        return [f"{name}={value}" for name, value in vars(self).items() if name not in self.OWN]

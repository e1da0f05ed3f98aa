# SPDX-License-Identifier: Apache-2.0
"""Which process of a group has died: not every backend's error names it."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from braid._machine import host_identity

_OWN_NAMES = Path("/proc/self/ns/pid")  # containers may have process numbers of their own
_PATIENCE_S = 0.3  # connections of a killed process break a little before its end can be seen
_PAUSE_S = 0.01


@dataclass(frozen=True)
class Process:
    """A process, as one that shares its host can find it."""

    where: str
    number: int

    @classmethod
    def own(cls) -> "Process":
        """Return this process."""
        return cls(_where(), os.getpid())

    def is_dead(self) -> bool:
        """Return whether the process has ended; False as well where nobody can know."""
        if not self.where or self.where != _where():
            return False
        try:
            state = Path(f"/proc/{self.number}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return True
        return state in "ZX"


def dead_among(processes: dict[int, Process]) -> int | None:
    """Return the rank of a process that has died, or None; waits a moment for it to be seen."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        for rank, process in processes.items():
            if process.is_dead():
                return rank
        time.sleep(_PAUSE_S)
    return None


def _where() -> str:
    try:
        return f"{host_identity()} {_OWN_NAMES.readlink()}"
    except OSError:
        return ""

# SPDX-License-Identifier: Apache-2.0
"""The line that rank 0 writes when a job starts: what carries its tensors, and how to stop a takeover."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from braid import _settings
from braid._notices import tell

_taken_over: ContextVar[str] = ContextVar("taken_over", default="")
_told: set[str] = set()


@contextmanager
def taking_over(asked: str | None) -> Iterator[None]:
    """Say that groups made in this context replace the backend that a script asked for; None: it named none."""
    token = _taken_over.set(f'backend "{asked}"' if asked else "default backend")
    try:
        yield
    finally:
        _taken_over.reset(token)


def tell_start(backend: Any, rank: int, ranks: int, leg: str = "") -> None:
    """Write the line, once, on rank 0 of the default group. BRAID_QUIET=1 leaves it out.

    Args:
        backend: the default group's backend, with its ``wires()`` and ``topology()``.
        rank: this rank.
        ranks: the number of ranks.
        leg: a clause about the local leg; "" if there is none.

    Example:
        braid 0.1.0: 4 ranks on 2 hosts, by shm and tcp; runs the script's backend "gloo" (taken over; unset
        BRAID_TAKEOVER to stop)
    """
    if rank != 0 or _settings.is_on("BRAID_QUIET"):
        return
    hosts, wires = _place(backend)
    by = f", by {' and '.join(wires)}" if wires else ""
    line = f"{_many(ranks, 'rank')} on {_many(hosts, 'host')}{by}"
    if leg:
        line += f"; {leg}"
    if name := _taken_over.get():
        line += f"; runs the script's {name} (taken over; {_settings.how_to_stop('BRAID_TAKEOVER')})"
    if (
        ranks == hosts == 2
        and not _settings.value_of("BRAID_COMPRESSION")
        and not _settings.value_of("BRAID_STRATEGY")
    ):
        line += "; two hosts gain nothing with exact sums, but by compression (docs/compression.md)"
    if line in _told:
        return
    _told.add(line)
    from braid import _core

    tell(line, f"braid {_core.version}")


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _place(backend: Any) -> tuple[int, list[str]]:
    """Return the number of hosts, and the names of the wires to other ranks."""
    found = re.match(r"topology hosts=([\d,]+)", backend.topology())
    wires = {line.partition(": ")[2].split(" ")[0].rstrip(",") for line in backend.wires()} - {"this"}
    return len(set(found[1].split(","))) if found else 1, sorted(wires)

# SPDX-License-Identifier: Apache-2.0
"""``braid.Communicator``: collectives on NumPy arrays, without torch."""

import atexit
import contextlib
import os
import sys
import weakref
from collections.abc import Hashable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np

from braid import _core
from braid._array import calls
from braid._array.collectives import Collectives
from braid._array.messages import Messages
from braid._array.numbers import whole
from braid._array.rendezvous import Meeting, meet
from braid._array.request import checked_timeout
from braid._links import stated_links

DEFAULT_TIMEOUT_S = 600.0


class Communicator(Collectives, Messages):
    """A group of processes that work on NumPy arrays together, in the manner of mpi4py's upper-case calls.

    All ranks must start the same collectives in the same order. Any thread may call; give each thread that starts
    collectives at the same time a communicator of its own (split()).

    Args:
        where: how the ranks find each other: ``"tcp://host:port"``, where rank 0 listens; ``"env://"``, the same
            from MASTER_ADDR and MASTER_PORT; ``"file:///folder"`` that all see; a store with set, get and wait,
            such as torch's; or an mpi4py communicator.
        rank: this process, counted from 0; RANK unless given.
        size: how many there are; WORLD_SIZE unless given.
        name: tells communicators apart that exist at the same time and meet at the same place.
        timeout_s: limit of the meeting and of each operation; None for no limit.

    Raises:
        TypeError, ValueError: an argument makes no sense.
        CommunicatorTimeoutError: not all ranks came; it names one that did not.
        CommunicatorError: they could not meet.

    Example:
        >>> import braid, numpy as np
        >>> with braid.Communicator("tcp://localhost:29511", rank=0, size=1) as comm:
        ...     print(comm.all_reduce(np.ones(3)))
        [1. 1. 1.]
    """

    def __init__(
        self,
        where: Any,
        *,
        rank: int | None = None,
        size: int | None = None,
        name: str = "world",
        timeout_s: float | None = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Meet the other ranks; returns when all are there."""
        limit_s = checked_timeout(timeout_s)
        self._join(
            meet(where, rank, size, limit_s), name, limit_s, with_servers=bool(os.environ.get("BRAID_SERVERS"))
        )

    def _join(self, meeting: Meeting, name: str, timeout_s: float | None, *, with_servers: bool = False) -> None:
        self._meeting, self._name, self._timeout_s = meeting, name, timeout_s
        self._place = meeting.rank, meeting.size
        self._splits = 0
        with contextlib.ExitStack() as undo:
            undo.callback(meeting.store.close)
            _take(meeting, name, undo)
            servers = meeting.store.apart() if with_servers else None
            if servers is not None:
                undo.callback(servers.close)
            self._core = _core.Communicator(
                meeting.store, *self._place, name, timeout_s, meeting.reach, stated_links(), servers
            )
            undo.callback(self._core.close)
            # Until all ranks are past the meeting its place must stay as it is. From here on rank 0 may leave, and
            # the same name be used again.
            self.barrier()
            meeting.store.rest()
            self._finalizer = weakref.finalize(self, undo.pop_all().close)
            self._finalizer.atexit = False

    @property
    def rank(self) -> int:
        """This process, from 0."""
        return self._place[0]

    @property
    def size(self) -> int:
        """How many processes there are."""
        return self._place[1]

    @property
    def name(self) -> str:
        """The name given, or the one that split() made."""
        return self._name

    # ---- the group

    def split(self, color: int | None, key: int | None = None) -> "Communicator | None":
        """Make a communicator of the ranks that give the same color, ordered by key, then rank. Collective.

        Returns None for color None. Without a key ranks keep their order.

        Raises:
            TypeError, ValueError: color or key is no integer of 64 bits; no other rank was told.
        """
        own = _word(0 if color is None else color, "color")
        mine = [color is not None, own, self.rank if key is None else _word(key, "key")]
        self._splits += 1
        rows = self.all_gather(np.array(mine, np.int64)).tolist()
        members = sorted((row[2], rank) for rank, row in enumerate(rows) if row[:2] == rows[self.rank][:2])
        child = None
        if color is not None:
            rank = members.index((mine[2], self.rank))
            meeting = replace(self._meeting, store=self._meeting.store.again(), rank=rank, size=len(members))
            child = Communicator.__new__(Communicator)
            child._join(meeting, f"{self.name}/{self._splits}.{own}", self._timeout_s)
        try:
            self.barrier()  # as in _join: the place must stay until all are past it
        except BaseException:
            if child is not None:
                child.close()
            raise
        return child

    def set_timeout(self, timeout_s: float | None) -> None:
        """Limit each operation started from now on; None for no limit. A timeout fails the communicator."""
        self._timeout_s = checked_timeout(timeout_s)
        self._core.set_timeout(self._timeout_s)

    def abort(self, reason: str) -> None:
        """Fail everything under way and to come, here and, soon, on all ranks."""
        self._core.abort(reason)

    def failure(self) -> str | None:
        """Return what the communicator failed with, or None. A failed one stays failed: make a new one."""
        return self._core.failure()

    def stats(self) -> list[dict[str, Any]]:
        """Return one row per collective and family of algorithm, with its counters."""
        return self._core.stats()

    def explain(
        self,
        collective: str,
        nbytes: int,
        dtype: str = "float32",
        op: str = "sum",
        root: int = 0,
        codec: Any = None,
    ) -> dict[str, Any]:
        """Tell which algorithm would carry a collective here, and why. Asks no other rank, and starts nothing.

        Args:
            collective: its name, as ``"all_reduce"``.
            nbytes: of the vector in all_reduce, broadcast and reduce; of all blocks together in the others, as the
                output of all_gather, the input of reduce_scatter, what one rank sends in all_to_all. stats()
                counts the same, on ranks that have all blocks. A barrier has none.
            dtype: of the elements, by NumPy's name or ``"bfloat16"``, ``"float8_e4m3fn"``, ``"float8_e5m2"``.
            op: of a reduction.
            root: of broadcast, reduce, gather and scatter.
            codec: of lossy_all_reduce; None: nothing is lost.

        Returns:
            A dict: ``collective``, ``family`` (the algorithm), ``predicted_s``, ``runners_up`` (a list of dicts
            with ``family`` and ``predicted_s``, cheapest first), ``reason``, one line, ``shares`` (what each rank,
            in hierarchical families each host, owns of the vector; empty when all own the same),
            ``chunk_bytes`` (how finely it is cut; 0: not at all), and ``segments`` (into how many). Predictions
            are for `nbytes`. The choice itself, and the times in its reason, are made for the next power of two;
            for all_to_all, gather and scatter, of whose size ranks know only their part, for the smallest size. So
            a runner-up may have the shorter prediction.

        Raises:
            ValueError: a name, size or root that there is not, or an op that the dtype has not.
        """
        return self._core.explain(
            *(collective, dtype, calls.op_name(op), whole(root, "root"), whole(nbytes, "nbytes")),
            "" if codec is None else str(codec),
        )

    def topology(self) -> str:
        """Return hosts, latencies and network cards as the choice of algorithms sees them, one fact per line.

        The first line has the host of every rank, ``within`` and ``between`` the links of ranks of one host and of
        two, ``work`` what a core of the slowest host takes to add or to code, where it was measured, ``card`` a
        host whose card is slower than those of the others. In seconds, and seconds per byte.
        """
        return self._core.topology()

    def wires(self) -> list[str]:
        """Return one line per rank: which wire joins us, and why not a better one."""
        return self._core.wires()

    def close(self) -> None:
        """Leave. Waits a few seconds for what was started; others who still need this rank get an error."""
        self._finalizer()

    def __enter__(self) -> Self:
        """Return the communicator, which is closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an exception abort, so that the others hear of it."""
        if isinstance(error, (Exception, KeyboardInterrupt)) and self._finalizer.alive:
            self.abort(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        self.close()

    def __repr__(self) -> str:
        """Return name, rank and size."""
        return f"<braid.Communicator {self.name!r}, rank {self.rank} of {self.size}>"


# Of the open communicators, where they met and their names: whoever used one twice would meet its own old cards.
_taken: set[tuple[Hashable, str]] = set()
os.register_at_fork(after_in_child=_taken.clear)


def _word(given: Any, what: str) -> int:
    number = whole(given, what)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{what} {number} has more than 64 bits")
    return number


def _take(meeting: Meeting, name: str, undo: contextlib.ExitStack) -> None:
    key = (meeting.place, name)
    if meeting.place is None:
        return
    if key in _taken:
        raise ValueError(f"a communicator {name!r} that met at the same place is open; give another name=")
    _taken.add(key)
    undo.callback(_taken.discard, key)


@atexit.register
def _leave_at_exit() -> None:
    # Python has printed the exception that ends a script by now, and remembers it.
    uncaught = getattr(sys, "last_type", None)
    if uncaught is None or hasattr(sys, "ps1"):
        _core.leave_all_groups("")
    else:
        _core.leave_all_groups(f"its process ends after an uncaught {uncaught.__name__}")


Communicator.__module__ = "braid"

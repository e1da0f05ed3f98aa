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

from braid import _core, _settings
from braid._array import calls
from braid._array.collectives import Collectives
from braid._array.messages import Messages
from braid._array.numbers import whole
from braid._array.rendezvous import Meeting, meet
from braid._array.request import checked_timeout
from braid._links import stated_links

DEFAULT_TIMEOUT_S = 600.0


class Communicator(Collectives, Messages):
    """A group of processes that work on arrays together, as with mpi4py's upper-case calls.

    Arrays are NumPy's, or other libraries' that offer the buffer protocol, DLPack or the CUDA array interface.

    All ranks must start the same collectives in the same order. Any thread may call. If several threads start
    collectives at the same time, each needs its own communicator (split()).

    Args:
        where: how the ranks find each other: ``"tcp://host:port"``, where rank 0 listens; ``"env://"``, the same
            from MASTER_ADDR and MASTER_PORT; ``"file:///folder"``, a folder that all ranks see; a store with set,
            get and wait, such as torch's; or an mpi4py communicator.
        rank: the rank of this process, from 0; by default RANK.
        size: the number of processes; by default WORLD_SIZE.
        name: tells apart communicators that exist at the same time and meet at the same place.
        timeout_s: limit of the rendezvous and of each operation; None for no limit.

    Raises:
        TypeError, ValueError: an argument makes no sense.
        CommunicatorTimeoutError: a rank did not come; the message names one.
        CommunicatorError: the ranks could not meet.

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
        """Meet the other ranks. Returns when all ranks are there."""
        limit_s = checked_timeout(timeout_s)
        _settings.refuse_wrong_values()
        meeting = meet(where, rank, size, limit_s)
        _settings.check(meeting.rank)
        self._join(meeting, name, limit_s, with_servers=bool(_settings.value_of("BRAID_SERVERS")))

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
            # The store must stay unchanged until all ranks have met. After the barrier rank 0 may leave, and the
            # same name may be used again.
            self.barrier()
            meeting.store.rest()
            self._finalizer = weakref.finalize(self, undo.pop_all().close)
            self._finalizer.atexit = False

    @property
    def rank(self) -> int:
        """The rank of this process, from 0."""
        return self._place[0]

    @property
    def size(self) -> int:
        """The number of processes."""
        return self._place[1]

    @property
    def name(self) -> str:
        """The given name, or the name that split() made."""
        return self._name

    # ---- the group

    def split(self, color: int | None, key: int | None = None) -> "Communicator | None":
        """Make a communicator of the ranks that give the same color, ordered by key, then rank. Collective.

        Returns None for color None. Without a key ranks keep their order.

        Raises:
            TypeError, ValueError: color or key is not an integer of 64 bits. No other rank learns of it.
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
            self.barrier()  # as in _join: the store must stay unchanged until all ranks have met
        except BaseException:
            if child is not None:
                child.close()
            raise
        return child

    def set_timeout(self, timeout_s: float | None) -> None:
        """Limit every operation that starts from now on; None for no limit. A timeout fails the communicator."""
        self._timeout_s = checked_timeout(timeout_s)
        self._core.set_timeout(self._timeout_s)

    def abort(self, reason: str) -> None:
        """Fail all operations, under way and later ones, on this rank at once and on all ranks soon."""
        self._core.abort(reason)

    def failure(self) -> str | None:
        """Return why the communicator failed, or None. It stays failed: make a new communicator."""
        return self._core.failure()

    def stats(self) -> list[dict[str, Any]]:
        """Return one dict of counters per collective and algorithm."""
        return self._core.stats()

    def explain(
        self,
        collective: str,
        nbytes: int,
        dtype: str = "float32",
        op: str = "sum",
        root: int = 0,
        codec: Any = None,
        device: int | None = None,
    ) -> dict[str, Any]:
        """Return the algorithm that a collective would use, and the reason. It asks no rank and starts nothing.

        Args:
            collective: its name, as ``"all_reduce"``.
            nbytes: bytes of the vector in all_reduce, broadcast and reduce. In the others the bytes of all blocks:
                the output of all_gather, the input of reduce_scatter, one rank's input of all_to_all. stats()
                counts the same, on ranks that have all blocks. A barrier has none.
            dtype: of the elements, by NumPy's name or ``"bfloat16"``, ``"float8_e4m3fn"``, ``"float8_e5m2"``.
            op: of a reduction.
            root: of broadcast, reduce, gather and scatter.
            codec: of lossy_all_reduce; None for an exact operation.
            device: the CUDA device that the arrays are on; None for memory of the host. The copies are measured at
                the first call with a device.

        Returns:
            A dict: ``collective``, ``algorithm``, ``predicted_s``, ``runners_up`` (a list of dicts
            with ``algorithm`` and ``predicted_s``, cheapest first), ``reason`` (one line), ``shares`` (the part of
            the vector that each rank owns, or each host in hierarchical algorithms; empty if all parts are equal),
            ``chunk_bytes`` (aimed at for a chunk of one segment; 0: not cut), ``segments`` (their number), and
            ``copies_s`` (of arrays on a device, down and up; every predicted time has them, in torch's backends
            less what overlaps with the network).

            Predictions are for `nbytes`. The choice, and the times in its reason, are for the next power of two.
            In all_to_all, gather and scatter ranks know only their part of the size. There the choice is for the
            smallest size. So a runner-up may have the shorter prediction.

        Raises:
            ValueError: there is no such name, size, root or device, or the dtype does not have the op.
            RuntimeError: there is no CUDA driver.
        """
        copies = None if device is None else _core.CudaCopies(whole(device, "device")).rates()
        return self._core.explain(
            *(collective, dtype, calls.op_name(op), whole(root, "root"), whole(nbytes, "nbytes")),
            "" if codec is None else str(codec),
            copies,
        )

    def topology(self) -> str:
        """Return hosts, latencies and network cards as the choice of algorithms sees them, one fact per line.

        The first line has the host of every rank. ``within`` has the links within a host, ``between`` the links
        between two hosts. ``work`` has the time that a core of the slowest host takes to add or to code, if it was
        measured. ``card`` has a host whose card is slower than the others. Units: seconds, and seconds per byte.
        """
        return self._core.topology()

    def wires(self) -> list[str]:
        """Return one line per rank: the wire to that rank, and why no better wire is used."""
        return self._core.wires()

    def close(self) -> None:
        """Leave. Waits a few seconds for started operations. Ranks that still need this one get an error."""
        self._finalizer()

    def __enter__(self) -> Self:
        """Return the communicator. The end of the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close. After an exception abort first, so that the other ranks get the reason."""
        if isinstance(error, (Exception, KeyboardInterrupt)) and self._finalizer.alive:
            self.abort(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        self.close()

    def __repr__(self) -> str:
        """Return name, rank and size."""
        return f"<braid.Communicator {self.name!r}, rank {self.rank} of {self.size}>"


# The place and name of every open communicator. Used twice, they would show ranks the endpoints of the older one.
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
    # By now Python has printed the exception that ends a script, and stored it in sys.last_type.
    uncaught = getattr(sys, "last_type", None)
    if uncaught is None or hasattr(sys, "ps1"):
        _core.leave_all_groups("")
    else:
        _core.leave_all_groups(f"its process ends after an uncaught {uncaught.__name__}")


Communicator.__module__ = "braid"

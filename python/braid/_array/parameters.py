# SPDX-License-Identifier: Apache-2.0
"""``braid.Parameters``: the parameter service on NumPy arrays, for trainers without torch."""

import contextlib
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from braid import _core, _services, _settings
from braid._array import snapshots
from braid._array.numbers import whole
from braid._array.rendezvous import meet
from braid._array.request import checked_timeout
from braid._array.servers.joint import meet_servers, members_of
from braid._array.servers.shares import agreed_shares

DEFAULT_TIMEOUT_S = 1800.0
OFF = "off"
_CLOSING_S = 60.0
Floats = npt.NDArray[np.float32]


class Parameters:
    """A vector of float32 that workers train together, without waiting for the slowest.

    Servers hold the vector in shards and apply an update rule to what workers push. By default every worker is a
    server, too. A worker that dies harms nobody; the shard of a server that dies moves to another one.

    Args:
        where: how the members find each other; see :class:`braid.Communicator`.
        elements: numbers in the vector; the same on all members.
        rule: what a push does: ``"sgd"``, ``"sgd:momentum"``, ``"sgd:momentum,nesterov"``, ``"sgd:compensates"``
            (DC-ASGD, Zheng 2017), ``"adam"``, ``"adamw"``, ``"add"`` (adds the update), ``"elastic"`` (EASGD,
            Zhang 2015: the update is the worker's own vector, and the elastic difference comes back) or
            ``"delayed_nesterov:every=4"`` (Liu 2024).
        rank: the number of this member; by default RANK.
        size: the number of members at the start; by default WORLD_SIZE. All of them are workers.
        servers: where shards lie: members such as ``[0, 2]``, ``"serve:2"`` for two processes of ``braid serve``,
            or ``"ranks+serve:2"`` for both. By default all members, or as many processes as the environment
            variable BRAID_PARAMETER_SERVERS says.
        shares: relative sizes of the shards. By default they follow the network cards that the file named by
            BRAID_LINKS states (docs/parameters.md). Without such a file, or with processes of ``braid serve``,
            they are equal.
        mode: ``"async"`` (updates are applied as they come), ``"round_robin"``, ``"ssp"`` (a worker is at most
            `staleness` updates ahead of the slowest; Ho 2013), ``"sync"`` (one update of the mean of all) or
            ``"quorum:at_least=3,grace_ms=500"`` (as sync, but who comes too late is in the next mean).
        staleness: the bound for ``"ssp"``.
        staleness_rate: divide the rate by the staleness of the update (Zhang 2016).
        compression: a codec for updates on their way, as ``"int8"`` (docs/codecs.md), or ``"off"``. What a
            message lacks goes with the next one. With ``"quorum"`` it then has the weight of that round's mean,
            which may be of more or fewer workers. Not with the rule ``"elastic"``.
        pull_compression: the same for values: the servers send what has changed.
        consistency: ``"atomic"``: values have whole updates. ``"relaxed"`` (Hogwild, Niu 2011): workers of a
            server's host add to its shard in mapped memory, without messages; updates that meet may be lost in
            part. For ``"async"`` and rules without state: add, sgd without momentum, elastic.
        replicas: 1 keeps a second copy of each shard, with the rule's state, at another server, which takes over
            if the first one dies. 0: there is no copy, and the rule's state begins anew then.
        late: join a service that runs, under a new number: `rank` is at least `size`.
        name: tells apart services that exist at the same time and meet at the same place.
        timeout_s: limit of the start and of each request.

    Raises:
        TypeError, ValueError: an argument makes no sense.
        CommunicatorError: the members could not meet, or their arguments differ; the message names both. Or too
            few processes of ``braid serve`` came.

    Example:
        >>> import braid, numpy as np
        >>> with braid.Parameters("tcp://localhost:29512", elements=3, rank=0, size=1) as parameters:
        ...     values = parameters.start(np.ones(3, np.float32))
        ...     parameters.push_pull(np.ones(3, np.float32), values, rate=0.5).wait()
        ...     print(values)
        [0.5 0.5 0.5]
    """

    def __init__(
        self,
        where: Any,
        *,
        elements: int,
        rule: str = "sgd",
        rank: int | None = None,
        size: int | None = None,
        servers: Iterable[int | str] | str | None = None,
        shares: Sequence[float] | None = None,
        mode: str = "async",
        staleness: int = 0,
        staleness_rate: bool = False,
        compression: str = "off",
        pull_compression: str = "off",
        consistency: str = "atomic",
        replicas: int = 0,
        late: bool = False,
        name: str = "parameters",
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Meet the other members. Returns when all are there."""
        limit_s = checked_timeout(timeout_s)
        if limit_s is None:
            raise ValueError(
                "a parameter service needs a timeout: whoever waits for ever cannot tell a lost member"
            )
        if (count := whole(elements, "elements")) < 0:
            raise ValueError(f"elements must not be negative, got {count}")
        _settings.refuse_wrong_values()
        meeting = meet(where, 0 if late else rank, size, limit_s, may_listen=not late)
        member = whole(rank, "rank") if late else meeting.rank
        self._elements = count
        self.name, self.member, self.workers = name, member, meeting.size
        with contextlib.ExitStack() as undo:
            undo.callback(meeting.store.close)
            holders = members_of(servers, meeting.size)
            parts = (
                agreed_shares(meeting.store, f"braid/shares/{name}", member, meeting.size, holders, limit_s)
                if shares is None
                else [float(share) for share in shares]
            )
            common: dict[str, Any] = {
                "workers": meeting.size,
                "servers": holders,
                "elements": count,
                "shares": parts,
                "rule": rule,
                "mode": mode,
                "staleness": whole(staleness, "staleness"),
                "staleness_rate": bool(staleness_rate),
                "timeout_s": limit_s,
                "push_codec": codec_of(compression),
                "pull_codec": codec_of(pull_compression),
                "consistency": consistency,
                "replicas": whole(replicas, "replicas"),
            }
            with meet_servers(meeting, name, member, common, is_late=bool(late)) as (store, name_there):
                door = store.apart()
                undo.callback(door.close)
                self._core = _core.ParameterService(
                    store,
                    door,
                    name_there,
                    member=member,
                    who=f"rank {member}",
                    late=bool(late),
                    reach=meeting.reach,
                    **common,
                )
            undo.callback(self._core.close, 0.0)
            self._finalizer = weakref.finalize(self, undo.pop_all().close)
            self._finalizer.atexit = False
        _services.register(self)

    @property
    def elements(self) -> int:
        """The length of the vector."""
        return self._elements

    def start(self, initial: Floats) -> Floats:
        """Return the vector that all workers start with: member 0's. A late worker gets the newest values."""
        values = np.empty(self._elements, np.float32)
        self._core.start(self._vector(initial, "initial"), values)
        return values

    def push_pull(
        self,
        update: Floats,
        out: Floats | None,
        *,
        numbers: Sequence[tuple[int, Mapping[str, float]]] | None = None,
        scale: float = 1.0,
        **rule_numbers: float,
    ) -> "_core.ParameterRequest":
        """Send an update, and get the values after it into `out`.

        Args:
            update: shape (elements,), float32: a gradient, or what else the rule takes. It must not change until
                the request is done.
            out: where the values arrive, shape (elements,), float32; None to push alone. After the death of a
                server its values come from the `out` of the last request: do not write there.
            numbers: ``(end, {"rate": 0.1, ...})`` for consecutive ranges of the vector.
            scale: the update is multiplied by it first.
            rule_numbers: the numbers of all elements: rate, momentum, dampening, weight_decay, beta1, beta2,
                epsilon, alpha, lambda (as ``**{"lambda": 0.04}``).

        Returns:
            A request with wait(timeout_s=None), done(), staleness and versions.
        """
        if numbers is not None and rule_numbers:
            raise ValueError("give the numbers of the rule by range or for all elements, not both")
        table = (
            [(self._elements, dict(rule_numbers))] if numbers is None else [(e, dict(row)) for e, row in numbers]
        )
        return self._core.push_pull(
            self._vector(update, "update"), None if out is None else self._vector(out, "out"), table, float(scale)
        )

    def pull(self, out: Floats) -> "_core.ParameterRequest":
        """Get the newest values into `out`, shape (elements,), float32. Returns a request."""
        return self._core.pull(self._vector(out, "out"))

    def snapshot(self) -> dict[str, Any]:
        """Return values and the rule's state, for restore(). Other workers may push meanwhile.

        Returns:
            A dict. ``vectors``: the values and then the vectors of the rule's state, each of shape (elements,),
            float32. ``ends``, ``steps`` of the rule and ``versions``: of each shard.
        """
        return snapshots.whole_vectors(self._core.snapshot(), self._core.ends())

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Set what snapshot() returned. Shards may be other ones now; the rule must have as many vectors of state.

        Raises:
            ValueError: the snapshot is of another number of elements, or of another rule.
        """
        self._core.restore(*snapshots.by_shard(saved, self._core.ends()))

    def stats(self) -> dict[str, Any]:
        """Return versions, the staleness histogram, bytes by server and lost parts; see docs/strategies.md."""
        return self._core.stats()

    def close(self, limit_s: float = _CLOSING_S) -> None:
        """Leave. A member that holds a shard first waits, for `limit_s` at most, until all workers have left."""
        if self._finalizer.alive:
            self._core.close(float(limit_s))
        self._finalizer()
        _services.forget(self)

    def abandon(self) -> None:
        """Leave at once, without waiting for others."""
        self.close(0.0)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close; after an exception without waiting for the others."""
        self.close(_CLOSING_S if kind is None else 0.0)

    def _vector(self, given: Any, what: str) -> Floats:
        if not isinstance(given, np.ndarray) or given.dtype != np.float32 or given.shape != (self._elements,):
            found = f"{given.dtype} {given.shape}" if isinstance(given, np.ndarray) else type(given).__name__
            raise TypeError(f"{what} must be a float32 array of shape ({self._elements},), not {found}")
        if not given.flags.c_contiguous:
            raise ValueError(f"{what} must be contiguous")
        return given


def codec_of(compression: str) -> str:
    """Return the core's word for an option's value: float32 is the empty text there."""
    return "" if compression == OFF else compression

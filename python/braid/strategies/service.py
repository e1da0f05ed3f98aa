# SPDX-License-Identifier: Apache-2.0
"""One packed vector at the parameter service, and the request under way. Only this file knows the core."""

import time
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from braid import _core, _services
from braid._array import snapshots
from braid._array.parameters import codec_of
from braid._array.servers.placement import FIRST_ALONE
from braid._array.servers.shares import agreed_shares
from braid._array.servers.terms import pack
from braid.strategies.options import Options
from braid.strategies.store import Meeting


class SharedVector:
    """A vector of float32 whose newest values the servers have.

    Attributes:
        update: what the next push sends. Do not touch it while a request is under way.
        out: the values of the last pull. Do not touch it while a request is under way.
        exposed_us: how long this thread has waited for requests.
        versions: of the values that the last push brought, one per shard: how many updates are in them.
        staleness: of the last push: how many updates came between its values and it.
        name, member, workers: as braid.stats() shows them.
    """

    def __init__(
        self,
        meeting: Meeting,
        part: str,
        servers: list[int],
        *,
        elements: int,
        rule: str,
        settings: str,
        options: Options,
        timeout_s: float,
        update: torch.Tensor | None = None,
    ) -> None:
        """Connect to the servers. Blocks until all of them are there.

        Args:
            meeting: where members meet.
            part: tells the vectors of a strategy apart.
            servers: members that hold shards.
            elements: length of the vector.
            rule: how servers apply updates.
            settings: text that all members must have.
            options: mode, staleness and compression.
            timeout_s: limit of the beginning and of each request.
            update: memory for the attribute of that name; new memory by default.

        Raises:
            ValueError: another member has other settings.
            CommunicatorError: a member did not come, or died; the message names it.
        """
        self.name, self.member, self.workers = f"{meeting.name}/{part}", meeting.member, meeting.workers
        common: dict[str, Any] = {
            "workers": meeting.workers,
            "servers": servers,
            "elements": elements,
            "shares": agreed_shares(
                meeting.store, f"shares/{part}", meeting.member, meeting.workers, servers, timeout_s, meeting.rate
            ),
            "rule": rule,
            "settings": settings,
            "mode": options.mode,
            "staleness": options.bound,
            "staleness_rate": options.staleness_rate,
            "timeout_s": timeout_s,
            "push_codec": codec_of(options.compression),
            "pull_codec": codec_of(options.pull_compression),
            "consistency": options.consistency,
            "replicas": options.replicas,
        }
        if meeting.member == 0 and servers[-1] >= FIRST_ALONE:
            # Servers without a rank take their settings from here.
            meeting.store.set(f"serve/{part}", pack(common))
        door, self._shut_door = meeting.doors.open(self, meeting.store.apart())
        self._core = _core.ParameterService(
            meeting.store.apart(),
            door,  # for servers: late workers come through it
            self.name,
            member=meeting.member,
            who=meeting.who,
            late=meeting.is_late,
            **common,
        )
        self.update = torch.zeros(elements, dtype=torch.float32) if update is None else update
        self.out = torch.zeros(elements, dtype=torch.float32)
        self.exposed_us = 0.0
        self.versions: list[int] = []
        self.staleness = 0
        self._closing_s = timeout_s
        self._update, self._out = self.update.numpy(), self.out.numpy()
        self._request: Any = None
        self._newest: Any = None  # the request that brought the values of now
        self._basis: Any = None
        _services.register(self)

    def start(self, out: Tensor | None = None) -> None:
        """Make worker 0's values in `update` the servers', and pull them. A late member only pulls.

        Args:
            out: gets the values in place of the attribute `out`; shape (elements,).
        """
        self._newest = self._core.start(self._update, self._out if out is None else out.numpy())

    def begin_step(self) -> None:
        """Note that the next update was computed with the values that the last finished request brought."""
        self._basis = self._newest

    def push_pull(
        self, numbers: list[tuple[int, dict[str, float]]], scale: float = 1.0, *, round_: int | None = None
    ) -> None:
        """Start to push `update`, times `scale`, and to pull into `out`.

        `round_`: the push is meant for the round that follows so many. If that is over, the push counts in the
        present one, and the answer comes at once: for a mode with ``late=goes_on``.
        """
        self._request = self._core.push_pull(self._update, self._out, numbers, scale, self._basis, round_)

    def begin_look(self) -> Any:
        """Start to ask how many updates each shard has had. The request has wait() and then `versions`."""
        return self._core.look()

    @property
    def newest_versions(self) -> list[int]:
        """How many updates are in the newest values that came, by shard."""
        return list(self._newest.versions)

    def begin_pull(self) -> None:
        """Start to pull into `out`."""
        self._request = self._core.pull(self._out)

    def wait(self) -> None:
        """Wait for the request under way, if there is one. It still has to be finished."""
        if self._request is None:
            return
        begun = time.perf_counter()
        try:
            self._request.wait()
        finally:
            self.exposed_us += 1e6 * (time.perf_counter() - begun)

    def finish(self) -> bool:
        """Wait for the request under way. Return whether there was one."""
        if self._request is None:
            return False
        try:
            self.wait()
        finally:
            request, self._request = self._request, None
        self.versions, self.staleness = list(request.versions), int(request.staleness)
        self._newest = request
        return True

    def pull(self, out: Tensor | None = None) -> None:
        """Pull the newest values into the attribute `out`, or into the argument: shape (elements,)."""
        request = self._core.pull(self._out if out is None else out.numpy())
        request.wait()
        self._newest = request

    @property
    def nbytes(self) -> int:
        """The memory of `update` and `out`, in bytes."""
        return int(self.update.nbytes + self.out.nbytes)

    def rest(self) -> None:
        """Say that no other worker waits for this one until its next push."""
        self._core.rest().wait()

    def present(self) -> Collection[int]:
        """Return the workers that have not died, as far as this member knows: servers hear of deaths."""
        return self._core.stats()["workers"] or range(self.workers)

    def snapshot(self) -> dict[str, Any]:
        """Return the servers' values and the rule's state, whatever the shards.

        Returns:
            A dict. ``vectors``: the values and then the vectors of the rule's state, as tensors. ``ends``,
            ``steps`` of the rule and ``versions``: of each shard.
        """
        saved = snapshots.whole_vectors(self._core.snapshot(), self._core.ends())
        return {**saved, "vectors": [torch.from_numpy(vector) for vector in saved["vectors"]]}

    def restore(self, saved: dict[str, Any]) -> None:
        """Give the servers what snapshot() returned. Shards may be other ones now."""
        vectors = [vector.numpy() for vector in saved["vectors"]]
        self._core.restore(*snapshots.by_shard({**saved, "vectors": vectors}, self._core.ends()))

    def stats(self) -> dict[str, Any]:
        """Return the service's counters, and how long this thread has waited for it."""
        return {**self._core.stats(), "exposed_us": self.exposed_us}

    def close(self, *, wait: bool = True, why: str = "") -> None:
        """Leave the service. A server first waits until all workers have left, unless `wait` is False.

        `why`: the error because of which this member leaves. The others are told.
        """
        _services.forget(self)
        self._core.close(self._closing_s if wait else 0.0, why)
        self._shut_door()

    def abandon(self) -> None:
        """Leave at once."""
        self.close(wait=False)

# SPDX-License-Identifier: Apache-2.0
"""Where the shards of a hybrid strategy lie: at speakers, in processes of ``braid serve``, or in both."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from braid._array.servers.placement import FIRST_ALONE, placement_of
from braid._array.servers.terms import Vector, pack, unpack
from braid._errors import CommunicatorTimeoutError
from braid.strategies.agreement import offer_of, raise_if_bad, take_servers
from braid.strategies.hybrid.grouping import Grouping
from braid.strategies.hybrid.options import shards_of
from braid.strategies.store import Meeting

_GRACE_S = 5.0  # worker 0 says that servers are missing: the others wait for that a little longer


@dataclass(frozen=True)
class Shards:
    """Ranks that hold shards, None for all speakers; and how many processes of ``braid serve`` do."""

    ranks: tuple[int, ...] | None
    alone: int

    @classmethod
    def read(cls, servers: Iterable[int | str] | str | None, workers: int) -> "Shards":
        """Return what the option ``servers`` means; ValueError as placement_of()."""
        given = servers if servers is None or isinstance(servers, str) else list(servers)
        placement = placement_of(given, workers)
        items = [given] if isinstance(given, str) else given or []
        words = {word.strip() for item in items if isinstance(item, str) for word in item.split("+")}
        are_all = "ranks" in words or (given is None and not placement.alone)
        return cls(None if are_all else placement.ranks, placement.alone)

    def members(self, groups: Grouping) -> list[int]:
        """Return the servers: numbers of groups for speakers, then the processes of ``braid serve``.

        Raises:
            ValueError: a rank does not speak for a group.
        """
        speakers = list(range(len(groups))) if self.ranks is None else shards_of(self.ranks, groups)
        return [*speakers, *range(FIRST_ALONE, FIRST_ALONE + self.alone)]

    def engage(
        self, meeting: Meeting, folder: str, groups: Grouping, vectors: Sequence[Vector], timeout_s: float
    ) -> None:
        """Take the processes of ``braid serve`` for a meeting of speakers. All workers call it.

        Args:
            meeting: of all workers.
            folder: of the meeting of speakers, below the other one.
            groups: of workers.
            vectors: what servers hold.
            timeout_s: how long to wait for them.

        Raises:
            ValueError, CommunicatorTimeoutError: too little memory, or too few came; the same on all workers.
        """
        if not self.alone:
            return
        if meeting.member == 0:
            offer = offer_of(meeting, folder, len(groups), len(self.members(groups)), vectors, timeout_s)
            verdict = take_servers(meeting, offer, self.alone)
            meeting.store.set(f"{folder}/servers", pack(verdict))
        else:
            verdict = self._hear(meeting, folder, timeout_s)
        raise_if_bad(verdict)

    def _hear(self, meeting: Meeting, folder: str, timeout_s: float) -> dict[str, Any]:
        try:
            return unpack(meeting.store.get(f"{folder}/servers", timeout_s + _GRACE_S))
        except TimeoutError:
            text = f"strategy {meeting.name!r}: worker 0 did not say within {timeout_s:g} s whether servers came"
            raise CommunicatorTimeoutError(text, 0) from None

# SPDX-License-Identifier: Apache-2.0
"""Members of groups as threads of one process: what `braid.strategies.hybrid.members` has for ranks."""

import threading
from typing import Any

import pytest
import torch
from braid._errors import CommunicatorError
from fake_cluster import Cluster
from slowness import limit

TIMEOUT_S = limit(20.0)


class Room:
    """What the members of one group share: each puts something down, and then sees what all have put down."""

    def __init__(self, size: int) -> None:
        self._changed, self._size, self._is_closed = threading.Condition(), size, False
        self._rounds: list[dict[int, Any]] = []

    def exchange(self, place: int, value: Any) -> list[Any]:
        with self._changed:
            mine = next((each for each in self._rounds if place not in each), None)
            if mine is None:
                self._rounds.append(mine := {})
            mine[place] = value
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(mine) == self._size or self._is_closed, TIMEOUT_S)
            if len(mine) < self._size:
                raise CommunicatorError("a member of the group is lost")
            return [mine[each] for each in range(self._size)]

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class FakeMembers:
    """As `Members`."""

    def __init__(self, ranks: list[int], rank: int, room: Room) -> None:
        self.ranks, self.is_speaker, self._room = ranks, rank == ranks[0], room
        self._place = ranks.index(rank)

    def sum(self, vector: torch.Tensor) -> None:
        vector.copy_(sum(self._room.exchange(self._place, vector.clone())))

    def take(self, vector: torch.Tensor) -> None:
        vector.copy_(self._room.exchange(self._place, vector.clone())[0])

    def hear(self, value: Any) -> Any:
        return self._room.exchange(self._place, value)[0]

    def gather(self, value: Any) -> list[Any]:
        return self._room.exchange(self._place, value)

    def leave(self, *, in_order: bool) -> None:
        if not in_order:
            self._room.close()


class Rooms:
    """Gives the threads of a cluster their groups, in the place of process groups of torch."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self._cluster, self._lock, self._rooms = cluster, threading.Lock(), {}
        monkeypatch.setattr("braid.strategies.hybrid.hybrid.gathering", self._gathering)
        self.lines: list[str] = []
        monkeypatch.setattr("braid.strategies.hybrid.hybrid.tell", self.lines.append)

    def _gathering(self, process_group: object, timeout_s: float) -> Any:
        meeting, made = self._cluster.meeting, [0]

        def gather(groups: list[list[int]], index: int) -> FakeMembers:
            made[0] += 1
            ranks = groups[index]
            with self._lock:
                room = self._rooms.setdefault((meeting.name, made[0], tuple(ranks)), Room(len(ranks)))
            return FakeMembers(ranks, meeting.member, room)

        return gather

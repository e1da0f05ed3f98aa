# SPDX-License-Identifier: Apache-2.0
"""The members of one group of a hybrid strategy, and what they exchange with each other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from braid import _own_groups
from braid._errors import CommunicatorError
from braid.strategies.hybrid.grouping import Grouping
from braid.strategies.hybrid.processes import Process, dead_among

_T = TypeVar("_T")


class Members(Protocol):
    """Collectives of a group. The first rank is the speaker; all calls raise CommunicatorError.

    Attributes:
        ranks: the members.
        is_speaker: whether this process speaks for the group.
    """

    ranks: list[int]
    is_speaker: bool

    def sum(self, vector: Tensor) -> None:
        """Replace the vector by the sum of all members' vectors."""

    def take(self, vector: Tensor) -> None:
        """Replace the vector by the speaker's."""

    def hear(self, value: _T) -> _T:
        """Return the speaker's value."""

    def gather(self, value: _T) -> list[_T]:
        """Return all members' values, in the order of ranks."""

    def leave(self, *, in_order: bool) -> None:
        """End the group; members that still wait for this one get an error, unless all have ended `in_order`."""


Gathering = Callable[[Grouping, int], Members]  # all groups, and the index of this process's -> its members


def gathering(process_group: Any, timeout_s: float) -> Gathering:
    """Return what makes the members of a group in a process group. All ranks call that with all groups."""

    def gather(groups: Grouping, index: int) -> Members:
        return _TorchMembers(process_group, groups, index, timeout_s)

    return gather


class _TorchMembers:
    """Members that have a process group of torch of their own, with the backend of the one that it is part of."""

    def __init__(self, process_group: Any, groups: Grouping, index: int, timeout_s: float) -> None:
        import torch.distributed as dist

        whole = process_group or dist.group.WORLD
        self.ranks = groups[index]
        self._global = [dist.get_global_rank(whole, rank) for rank in self.ranks]
        self.is_speaker = dist.get_rank(whole) == self.ranks[0]
        self._group: Any = None
        self._others: dict[int, Process] = {}
        self._make(process_group, groups, timedelta(seconds=timeout_s))
        processes = self.gather(Process.own())
        own = dist.get_rank(whole)
        self._others = {rank: process for rank, process in zip(self.ranks, processes, strict=True) if rank != own}

    def _make(self, process_group: Any, groups: Grouping, timeout: timedelta) -> None:
        import torch.distributed as dist

        whole = process_group or dist.group.WORLD
        if dist.get_world_size(whole) < dist.get_world_size():  # the ranks outside cannot take part
            if len(self.ranks) > 1:
                self._group = _own_groups.new_group(whole, "hybrid", ranks=self.ranks, timeout=timeout)
            return
        # NCCL splits its communicator for a new group, for which it wants all ranks of the job.
        backend = None if process_group is None else _own_groups.backend_of(process_group)
        for members in groups:
            if len(members) > 1:
                given = [dist.get_global_rank(whole, rank) for rank in members]
                made = dist.new_group(given, timeout=timeout, backend=backend)
                if members is self.ranks:
                    self._group = made

    def sum(self, vector: Tensor) -> None:
        import torch.distributed as dist

        if self._group is not None:
            with self._named():
                dist.all_reduce(vector, group=self._group)

    def take(self, vector: Tensor) -> None:
        import torch.distributed as dist

        if self._group is not None:
            with self._named():
                dist.broadcast(vector, self._global[0], group=self._group)

    def hear(self, value: _T) -> _T:
        import torch.distributed as dist

        box = [value]
        if self._group is not None:
            with self._named():
                dist.broadcast_object_list(box, self._global[0], group=self._group, device=torch.device("cpu"))
        return box[0]

    def gather(self, value: _T) -> list[_T]:
        import torch.distributed as dist

        values = [value] * len(self.ranks)
        if self._group is not None:
            with self._named():
                dist.all_gather_object(values, value, group=self._group)
        return values

    def leave(self, *, in_order: bool) -> None:
        import torch.distributed as dist

        del in_order  # members that have ended wait for nobody
        group, self._group = self._group, None
        if group is not None:
            with suppress(Exception):  # the default group may be gone already, and this group with it
                dist.destroy_process_group(group)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            why, others = " ".join(str(error).split()), list(self._others)
            lost = others[0] if len(others) == 1 else dead_among(self._others)
            who = "a member" if lost is None else f"rank {lost}"
            raise CommunicatorError(f"{group_name(self.ranks)} ends: {who} is lost: {why}", lost) from error


def group_name(ranks: list[int]) -> str:
    """Return how errors call a group."""
    return f"the group of rank {ranks[0]}" if len(ranks) == 1 else f"the group of ranks {_listed(ranks)}"


def speaker_name(ranks: list[int]) -> str:
    """Return how members of other groups call the speaker of this one."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    is_a_row = len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1))
    return f"rank {ranks[0]} (for ranks {f'{ranks[0]} to {ranks[-1]}' if is_a_row else _listed(ranks)})"


def _listed(ranks: list[int]) -> str:
    return f"{', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"

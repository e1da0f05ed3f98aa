# SPDX-License-Identifier: Apache-2.0
"""The options of a hybrid strategy beside those of a parameter server: groups, and the rate of a group."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from braid.strategies.hybrid.grouping import Grouping, checked, in_words

BY_RULE = ("auto", "host")
_RATE_RULES = ("linear", "sqrt", "none")


@dataclass(frozen=True)
class GroupOptions:
    """How groups are formed, and by what a group's rate is multiplied; Hybrid explains each option."""

    groups: Any = "auto"
    measure_steps: int = 10
    rate_rule: str = "linear"
    base_workers: int = 1
    warmup_steps: int = 0

    def check(self, workers: int, servers: Iterable[int] | None) -> None:
        """Raise TypeError or ValueError if an option has no such value, or does not fit `workers`.

        `servers`: ranks that hold shards, None for all speakers.
        """
        if isinstance(self.groups, str) and self.groups not in BY_RULE:
            raise ValueError(
                f"groups={self.groups!r}: say 'auto', 'host', or lists of ranks such as [[0, 1], [2, 3]]"
            )
        if self.rate_rule not in _RATE_RULES:
            raise ValueError(f"rate_rule={self.rate_rule!r}: there are {', '.join(_RATE_RULES)}")
        for name, least in (("measure_steps", 2), ("base_workers", 1), ("warmup_steps", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name}={value!r}: a whole number, at least {least}")
        if servers is None:
            self.named(workers)
        elif self.groups == "auto":
            raise ValueError("servers= names speakers, and groups='auto' has none at the beginning: leave it out")
        else:
            if (named := self.named(workers)) is not None:
                shards_of(servers, named)

    def named(self, workers: int) -> Grouping | None:
        """Return the groups that the user has named; None if a rule forms them. Raises as check()."""
        if isinstance(self.groups, str):
            return None
        try:
            groups = [[_whole(rank) for rank in group] for group in self.groups]
        except TypeError:
            raise TypeError(f"groups={self.groups!r}: give lists of ranks, such as [[0, 1], [2, 3]]") from None
        return checked(groups, workers)

    def describe(self, workers: int) -> list[str]:
        """Return one line for each option; all workers must have the same."""
        named = self.named(workers)
        lines = [f"groups={self.groups if named is None else in_words(named)}"]
        return lines + [f"{name}={value}" for name, value in vars(self).items() if name != "groups"]

    def factor(self, workers: float, step: int) -> float:
        """Return by what the rate of a group of `workers` is multiplied in its update number `step`, from 0.

        During the warm-up the factor goes from 1 to that of the rule (Goyal et al. 2017).
        """
        ratio = workers / self.base_workers
        full = {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[self.rate_rule]
        return full if step >= self.warmup_steps else 1.0 + (full - 1.0) * step / self.warmup_steps


def shards_of(servers: Iterable[int], groups: Grouping) -> list[int]:
    """Return the numbers of the groups whose speakers are servers.

    Raises:
        ValueError: a rank of `servers` does not speak for a group.
    """
    speakers = [group[0] for group in groups]
    if silent := [rank for rank in servers if rank not in speakers]:
        raise ValueError(
            f"servers={list(servers)}: rank {silent[0]} speaks for no group, so it cannot be a server; "
            f"the speakers are {', '.join(map(str, speakers))}"
        )
    return [speakers.index(rank) for rank in servers]


def _whole(rank: Any) -> int:
    if not isinstance(rank, int) or isinstance(rank, bool):
        raise TypeError
    return rank

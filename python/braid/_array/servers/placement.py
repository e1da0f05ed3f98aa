# SPDX-License-Identifier: Apache-2.0
"""Which members hold shards: what a user says, and what it means for a number of workers."""

from collections.abc import Iterable
from dataclasses import dataclass

from braid import _settings
from braid._settings import MOST_ALONE

FIRST_ALONE = 60_000  # members from here on are processes of `braid serve`; ranks and late workers stay below
VARIABLE = "BRAID_PARAMETER_SERVERS"
_WAYS = "a list of ranks, or text such as '0+2', 'serve:2', 'ranks+serve:2'"


@dataclass(frozen=True)
class Placement:
    """Which ranks hold shards, and how many processes of ``braid serve`` do."""

    ranks: tuple[int, ...]
    alone: int = 0

    @property
    def members(self) -> list[int]:
        """The members that are servers: ranks first."""
        return [*self.ranks, *range(FIRST_ALONE, FIRST_ALONE + self.alone)]


def items_of(text: str) -> list[int | str]:
    """Return the items of a text such as ``"0+2+serve:1"``; ValueError names one that is wrong."""
    items: list[int | str] = []
    for item in (part.strip() for part in text.split("+")):
        kind, _, count = item.partition(":")
        if item.isdecimal():
            items.append(int(item))
        elif item == "ranks" or (kind == "serve" and count.isdecimal() and 0 < int(count) <= MOST_ALONE):
            items.append(item)
        else:
            raise ValueError(
                f"{item!r} is no place: give a rank, 'ranks', or 'serve:N' with N from 1 to {MOST_ALONE}"
            )
    return items


def placement_of(servers: Iterable[int | str] | str | None, workers: int) -> Placement:
    """Return what the option ``servers`` means.

    Args:
        servers: ranks, ``"ranks"`` for all of them, ``"serve:N"`` for N processes of ``braid serve``; a list of
            such items, or text that joins them with plus signs. None: as many processes as the environment
            variable BRAID_PARAMETER_SERVERS says; without it all ranks.
        workers: how many workers begin.

    Raises:
        ValueError: there is no such place.
    """
    if servers is None:
        _settings.refuse_wrong_values()
        count = _settings.value_of(VARIABLE) or "0"
        servers = "ranks" if int(count) == 0 else f"serve:{int(count)}"
    given = servers if isinstance(servers, str) else list(servers)
    items: list[int | str] = []
    for item in [given] if isinstance(given, str) else given:
        try:
            items += items_of(item) if isinstance(item, str) else [int(item)]
        except (TypeError, ValueError) as error:
            raise ValueError(f"servers={given!r}: {error}; it takes {_WAYS}") from None
    ranks: list[int] = []
    alone = 0
    for item in items:
        if isinstance(item, int):
            ranks.append(item)
        elif item == "ranks":
            ranks += range(workers)
        else:
            alone += int(item.partition(":")[2])
    ranks.sort()
    if not items or len(set(ranks)) < len(ranks) or any(not 0 <= rank < workers for rank in ranks):
        raise ValueError(f"servers={given!r}: give one or more different ranks from 0 to {workers - 1}")
    if alone > MOST_ALONE:
        raise ValueError(f"servers={given!r}: at most {MOST_ALONE} processes of `braid serve`")
    return Placement(tuple(ranks), alone)

# SPDX-License-Identifier: Apache-2.0
"""Which workers form a group: by their step times, their hosts and their links. Pure functions."""

from collections.abc import Hashable, Sequence

Grouping = list[list[int]]  # members by number; groups, and members in a group, in rising order

TOLERANCE = 0.15  # a member may make its group this much slower than its fastest member would be


def by_time(
    times: Sequence[float],
    hosts: Sequence[Hashable],
    links: Sequence[Sequence[float]] | None = None,
    tolerance: float = TOLERANCE,
) -> Grouping:
    """Form groups of workers that lose little by waiting for each other.

    The fastest worker that has no group yet begins one. All that are slow by `tolerance` at most join it, the
    fastest first, if their links with all its members are good. On one host each link is good. Between hosts it is
    good if the gradient crosses it within `tolerance` of the fastest member's step.

    Args:
        times: seconds that each worker computes in a step; infinite where nobody knows.
        hosts: what host each worker is on.
        links: ``links[i][j]``: seconds that the gradient takes from worker i to worker j. None: nobody knows, so
            groups stay within hosts.
        tolerance: a part of the step time of a group's fastest member.

    Returns:
        The groups. Each worker is in one of them.

    Example:
        >>> by_time([0.25, 0.25, 0.5, 1.0], ["a", "a", "a", "a"])
        [[0, 1], [2], [3]]
    """

    def is_good(one: int, other: int, fastest_s: float) -> bool:
        if hosts[one] == hosts[other]:
            return True
        return links is not None and max(links[one][other], links[other][one]) <= tolerance * fastest_s

    left = sorted(range(len(times)), key=lambda worker: (times[worker], worker))
    groups: Grouping = []
    while left:
        first = left[0]
        group = [first]
        for worker in left[1:]:
            is_near = times[worker] <= (1 + tolerance) * times[first]
            if is_near and all(is_good(worker, other, times[first]) for other in group):
                group.append(worker)
        left = [worker for worker in left if worker not in group]
        groups.append(sorted(group))
    return sorted(groups)


def by_host(hosts: Sequence[Hashable]) -> Grouping:
    """Return one group per host."""
    found: dict[Hashable, list[int]] = {}
    for worker, host in enumerate(hosts):
        found.setdefault(host, []).append(worker)
    return sorted(found.values())


def checked(groups: Sequence[Sequence[int]], workers: int) -> Grouping:
    """Return groups that a user has named, sorted.

    Raises:
        ValueError: a rank is in two groups, in none, or does not exist; or a group is empty.
    """
    named = [rank for group in groups for rank in group]
    if unknown := sorted({rank for rank in named if not 0 <= rank < workers}):
        raise ValueError(f"groups={in_words(groups)}: {_ranks(unknown)} not among the ranks 0 to {workers - 1}")
    if twice := sorted({rank for rank in named if named.count(rank) > 1}):
        raise ValueError(f"groups={in_words(groups)}: {_ranks(twice)} there twice; put each rank into one group")
    if missing := sorted(set(range(workers)) - set(named)):
        raise ValueError(
            f"groups={in_words(groups)}: {_ranks(missing)} in no group; a rank alone is a group of one"
        )
    if not all(groups):
        raise ValueError(f"groups={in_words(groups)}: a group is empty; leave it out")
    return sorted(sorted(group) for group in groups)


def in_words(groups: Sequence[Sequence[int]]) -> str:
    """Return groups as the text form has them: ``0+1/2+3``."""
    return "/".join("+".join(map(str, group)) for group in groups)


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]} is" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} are"

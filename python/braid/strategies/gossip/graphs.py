# SPDX-License-Identifier: Apache-2.0
"""Who may exchange with whom. A graph knows places: a place is the index of a worker among those that live."""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise

NAMES = ("ring", "exponential", "random", "bipartite", "auto")
Edge = tuple[int, int]
Graph = str | tuple[Edge, ...]


def checked_graph(graph: object, workers: int, *, symmetric: bool) -> Graph:
    """Return a graph's name, or its edges in order.

    Args:
        graph: a name, or pairs of ranks.
        workers: how many begin; 0 if that is not known.
        symmetric: whether the mode needs active and passive workers.

    Raises:
        ValueError: the graph is none, or does not connect all workers.
    """
    if isinstance(graph, str):
        if graph not in NAMES:
            raise ValueError(
                f"graph {graph!r}: there is none of that name; there are {', '.join(NAMES)}, or a list of edges"
            )
        return graph
    edges = _edges(graph)
    if not workers:
        return edges
    for edge in edges:
        if max(edge) >= workers:
            raise ValueError(f"graph: edge {edge} names rank {max(edge)}, but ranks go from 0 to {workers - 1}")
    around = _around(range(workers), edges)
    colours = _colours(around)
    if len(colours) < workers:
        missing = next(rank for rank in range(workers) if rank not in colours)
        raise ValueError(f"graph: no path of edges leads from rank 0 to rank {missing}: all must be connected")
    if symmetric:
        for a, b in edges:
            if colours[a] == colours[b]:
                raise ValueError(
                    f"graph: edge {(a, b)} closes a circle of odd length, which the mode 'symmetric' cannot have: "
                    "leave an edge of it out, or take another mode"
                )
    return edges


class Neighbours:
    """The neighbours of one worker among those that live, and in which order it comes to them.

    Attributes:
        members: whom this worker may exchange with.
        is_active: whether it begins exchanges in the mode "symmetric". Passive workers only answer. So nobody
            waits while another one waits for it, and an exchange is atomic.
    """

    def __init__(self, graph: Graph, living: Sequence[int], me: int, workers: int, *, symmetric: bool) -> None:
        """Find them.

        Args:
            graph: as checked_graph() returns it.
            living: the numbers of all workers that live, in order.
            me: the number of this worker, one of them.
            workers: how many began; later numbers joined late.
            symmetric: only pairs of an active and a passive worker.
        """
        self._living, self._place = list(living), living.index(me)
        count, place = len(living), self._place
        if isinstance(graph, str):
            colours = {number: at % 2 for at, number in enumerate(living)}
            self._offsets = _offsets(graph, count, symmetric=symmetric)
            found = [living[(place + offset) % count] for offset in self._offsets]
        else:
            around = _around(living, _mended(graph, living, workers))
            colours = _colours(around)
            self._offsets = []
            found = sorted(around[me])
        if symmetric or graph == "bipartite":
            found = [number for number in found if colours[number] != colours[me]]
        self.members = [number for number in dict.fromkeys(found) if number != me]
        self.is_active = not symmetric or colours[me] == 0

    def at(self, turn: int) -> int:
        """Return the member of a turn. There must be one."""
        return self.members[turn % len(self.members)]

    def disseminate(self, turn: int) -> int:
        """Return the member of a turn, so that each lap through all of them begins with another (GossipGraD)."""
        count = len(self.members)
        lap, step = divmod(turn, count)
        return self.members[(step + lap) % count]


def _offsets(graph: str, count: int, *, symmetric: bool) -> list[int]:
    if count < 2:
        return []
    if graph == "ring":
        return [1, count - 1]
    if graph == "exponential":
        powers = [1 << power for power in range((count - 1).bit_length())]
        # Odd steps lead from active workers to passive ones, as in the code of the authors of SGP.
        odd = [1, *(power + 1 for power in powers[1:] if power + 1 < count)]
        return [offset for step in odd for offset in (step, count - step)] if symmetric else powers
    return list(range(1, count))


def _edges(graph: object) -> tuple[Edge, ...]:
    if not isinstance(graph, Iterable):
        raise ValueError(f"graph={graph!r}: a name, or a list of edges as [(0, 1), (1, 2)]")
    found = []
    for edge in graph:
        pair = tuple(edge) if isinstance(edge, list | tuple) else ()
        if len(pair) != 2 or not all(isinstance(rank, int) and rank >= 0 for rank in pair):
            raise ValueError(f"graph: {edge!r} is no edge: an edge is a pair of ranks, as (0, 1)")
        if pair[0] == pair[1]:
            raise ValueError(f"graph: edge {pair} leads from rank {pair[0]} to itself")
        found.append((min(pair), max(pair)))
    return tuple(sorted(set(found)))


def _around(numbers: Iterable[int], edges: Iterable[Edge]) -> dict[int, set[int]]:
    around: dict[int, set[int]] = {number: set() for number in numbers}
    for a, b in edges:
        around[a].add(b)
        around[b].add(a)
    return around


def _mended(edges: Iterable[Edge], living: Sequence[int], workers: int) -> list[Edge]:
    """Return edges among those that live: neighbours of a dead worker become a chain, a late one gets an edge."""
    most = max(living)
    around = _around(range(max(most + 1, workers)), edges)
    for late in range(workers, most + 1):
        other = late - workers if late < 2 * workers else late - 1
        around[late].add(other)
        around[other].add(late)
    for dead in sorted(set(around) - set(living)):
        chain = sorted(around.pop(dead))
        for number in chain:
            around[number].discard(dead)
        for a, b in pairwise(chain):
            around[a].add(b)
            around[b].add(a)
    return [(a, b) for a, others in around.items() for b in others if a < b]


def _colours(around: dict[int, set[int]]) -> dict[int, int]:
    """Return 0 or 1 for each number that edges connect with the first: neighbours differ where they can."""
    first = min(around)
    colours = {first: 0}
    ahead = deque([first])
    while ahead:
        number = ahead.popleft()
        for other in sorted(around[number]):
            if other not in colours:
                colours[other] = 1 - colours[number]
                ahead.append(other)
    return colours

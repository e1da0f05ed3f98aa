# SPDX-License-Identifier: Apache-2.0
"""With whom a worker exchanges next: by the graph, and with graph="auto" by measured times."""

import random
from collections.abc import Sequence

from braid.strategies.gossip.exchanges import Seen
from braid.strategies.gossip.graphs import Graph, Neighbours
from braid.strategies.gossip.options import DISSEMINATION, GossipOptions

_NEW = 0.3  # what the newest measurement counts


class Choice:
    """Chooses peers, and learns from exchanges."""

    def __init__(self, options: GossipOptions, me: int, workers: int) -> None:
        """Begin without measurements. `workers` is how many have begun together."""
        self._options, self._me, self._workers = options, me, workers
        self._graph: Graph = options.checked_graph(workers)
        self._random = random.Random(f"{options.seed}/{me}")
        self._around: tuple[list[int], Neighbours] | None = None  # replaced as one: two threads look
        self.exchange_s: dict[int, float] = {}
        self.step_s: dict[int, float] = {}

    def neighbours(self, living: Sequence[int]) -> Neighbours:
        """Return the neighbours among those that live, who include this worker."""
        around = self._around
        if around is None or around[0] != living:
            symmetric = self._options.is_symmetric
            found = Neighbours(self._graph, living, self._me, self._workers, symmetric=symmetric)
            around = self._around = (list(living), found)
        return around[1]

    def leaves_out(self, living: Sequence[int]) -> bool:
        """Return whether this worker's turn has come, but chance wants no exchange."""
        around = self.neighbours(living)
        return bool(around.members) and around.is_active and self._random.random() >= self._options.chance

    def next(self, living: Sequence[int], turn: int, *, is_wanted: bool = False) -> int | None:
        """Return the worker of this turn, or None if there is none.

        Args:
            living: all workers that live.
            turn: counts the steps in which an exchange was due.
            is_wanted: a passive worker gets one, too.
        """
        around = self.neighbours(living)
        if not around.members or not (around.is_active or is_wanted):
            return None
        if self._graph == "auto":
            return self._random.choices(around.members, self.weights(around.members))[0]
        if self._graph in ("random", "bipartite"):
            return self._random.choice(around.members)
        return around.disseminate(turn) if self._options.mode == DISSEMINATION else around.at(turn)

    def learn(self, member: int, exchange_s: float, seen: Seen) -> None:
        """Note how long an exchange has taken, and how long the other worker's steps take."""
        _blend(self.exchange_s, member, exchange_s)
        if seen.step_s:
            self.step_s[member] = seen.step_s

    def weights(self, members: Sequence[int]) -> list[float]:
        """Return how likely each of the members is chosen, in proportion to how fast it is.

        What takes time is the exchange, or the other's step: between two of its steps it learns nothing. A worker
        without measurements counts as the fastest.
        """
        costs = {
            member: max(self.exchange_s[member], self.step_s.get(member, 0.0))
            for member in members
            if member in self.exchange_s
        }
        least = max(min(costs.values(), default=1.0), 1e-9)
        return [least / max(costs.get(member, least), least) for member in members]


def _blend(times: dict[int, float], member: int, seconds: float) -> None:
    old = times.get(member, seconds)
    times[member] = old + _NEW * (seconds - old)

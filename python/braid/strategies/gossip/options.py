# SPDX-License-Identifier: Apache-2.0
"""The options of gossip, checked, and as text that all workers compare."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from braid.strategies.gossip.graphs import Graph, checked_graph

SYMMETRIC, PUSH_SUM, DISSEMINATION, PULL = "symmetric", "push_sum", "dissemination", "pull"
MODES = (SYMMETRIC, PUSH_SUM, DISSEMINATION, PULL)
_BUFFERS = ("average", "local")
# The graph of each mode, unless the user names one.
_GRAPHS = {SYMMETRIC: "bipartite", PUSH_SUM: "exponential", DISSEMINATION: "exponential", PULL: "random"}


@dataclass(frozen=True)
class GossipOptions:
    """How workers average in pairs; Gossip explains each option."""

    mode: str = SYMMETRIC
    graph: Any = None
    sync_every: int = 1
    probability: float | None = None
    overlap: bool = True
    buffers: str = "average"
    seed: int = 0
    init_sync: bool = True
    max_steps_alone: int = 100

    # Workers may differ in these.
    OWN: ClassVar = ("overlap", "max_steps_alone")

    def check(self, workers: int) -> None:
        """Raise ValueError if an option has no such value, or does not fit another.

        Args:
            workers: how many begin; 0 if this worker joins later, and does not know it.
        """
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode!r}: there is none of that name; there are {', '.join(MODES)}")
        if not isinstance(self.sync_every, int) or self.sync_every < 1:
            raise ValueError(f"sync_every={self.sync_every}: a whole number of steps, at least 1")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed={self.seed}: a whole number, at least 0")
        if not isinstance(self.max_steps_alone, int) or self.max_steps_alone < 0:
            raise ValueError(
                f"max_steps_alone={self.max_steps_alone}: a whole number of steps, or 0 for any number"
            )
        if self.probability is not None and not (
            isinstance(self.probability, int | float)
            and math.isfinite(self.probability)
            and 0 < self.probability <= 1
        ):
            raise ValueError(f"probability={self.probability}: more than 0, and at most 1")
        if self.buffers not in _BUFFERS:
            raise ValueError(f"buffers {self.buffers!r}: there are {' and '.join(_BUFFERS)}")
        self.checked_graph(workers)

    def checked_graph(self, workers: int) -> Graph:
        """Return the graph: the one given, or the mode's own. ValueError if there is none such."""
        graph = _GRAPHS[self.mode] if self.graph is None else self.graph
        return checked_graph(graph, workers, symmetric=self.is_symmetric)

    @property
    def is_symmetric(self) -> bool:
        """Whether an exchange changes both workers by the same difference."""
        return self.mode == SYMMETRIC

    @property
    def is_weighted(self) -> bool:
        """Whether vectors are kept times their weight."""
        return self.mode == PUSH_SUM

    @property
    def chance(self) -> float:
        """The probability of an exchange, when one is due."""
        return 1.0 if self.probability is None else float(self.probability)

    def describe(self) -> list[str]:
        """Return one line for each option that must be the same on all workers."""
        values = {**vars(self), "graph": self.checked_graph(0), "probability": self.chance}
        return [f"{name}={value}" for name, value in values.items() if name not in self.OWN]

# SPDX-License-Identifier: Apache-2.0
"""A piece of the centre at servers: a range of the model, and the vector at the servers that follows it."""

from typing import Any

import torch
from torch import Tensor

from braid.strategies.local.fragments import Fragment
from braid.strategies.local.options import LocalOptions
from braid.strategies.local.outer import try_out
from braid.strategies.local.preparation import LocalPrepared
from braid.strategies.packing import Entry, Packing
from braid.strategies.rules import AT_SERVER, Numbers, ServerRule
from braid.strategies.service import SharedVector


def rule_of(prepared: LocalPrepared, options: LocalOptions, workers: int) -> tuple[str, Numbers]:
    """Return how servers move the centre: the rule, and its numbers.

    Raises:
        ValueError: servers have no such rule.
    """
    elements = prepared.packing.elements
    if prepared.outer is None:
        return "sgd", [(elements, {"rate": 1.0})]
    outer = try_out(prepared.outer)
    if type(outer) not in AT_SERVER:
        known = ", ".join(kind.__name__ for kind in AT_SERVER)
        raise ValueError(f"outer_optimizer={type(outer).__name__}: with quorum= the servers' rules are {known}")
    if options.asynchronous:
        (group,) = outer.param_groups
        numbers = {"rate": float(group["lr"]), "momentum": float(group["momentum"])}
        return f"delayed_nesterov:every={options.momentum_every or max(1, workers)}", [(elements, numbers)]
    entries = [Entry(entry.name, entry.tensor) for entry in prepared.packing.entries]
    rule = ServerRule(outer, Packing(entries), compensate=0.0, implicit=False)
    return rule.text, rule.numbers(outer.param_groups, workers)


class Piece:
    """What a worker pushes and takes of one range of the model.

    Attributes:
        vector: at the servers.
        centre: as this worker last took it; float32, of shape (elements,).
        is_dirty: whether this worker has moved since its last push.
    """

    def __init__(self, fragment: Fragment, vector: SharedVector, numbers: dict[str, float]) -> None:
        """Begin with worker 0's values. `numbers`: of the servers' rule."""
        self.vector, self._fragment = vector, fragment
        self._numbers: Numbers = [(fragment.elements, numbers)]
        self.centre = torch.zeros(fragment.elements, dtype=torch.float32)
        self.is_dirty = False
        fragment.read(vector.update)
        vector.start(self.centre)
        fragment.write(self.centre)

    @property
    def rounds(self) -> int:
        """How many updates are in the values that this worker has, in each shard at least."""
        return min(self.vector.newest_versions, default=0)

    def begin(self, round_: int | None) -> None:
        """Start to push centre - x, and to pull; `round_`: as SharedVector.push_pull()."""
        update = self.vector.update
        self._fragment.read(update)
        torch.sub(self._fragment.shown(self.centre), update, out=update)
        self.vector.begin_step()
        self.vector.push_pull(self._numbers, round_=round_)
        self.is_dirty = False

    def finish(self, keep: float) -> None:
        """Wait for the push under way, and take the values that it brings; `keep`: which part of its own stays."""
        self.vector.finish()
        self.take(self.vector.out, keep)

    def take(self, centre: Tensor, keep: float = 0.0) -> None:
        """Take these values for the centre, and move the model there, in part if `keep` is not 0."""
        if self.centre is not centre:
            self.centre.copy_(centre)
        if not keep:
            self._fragment.write(self.centre)
            self.is_dirty = False
            return
        own = torch.empty_like(self.centre)
        self._fragment.read(own)
        self._fragment.write(own.lerp_(self.centre, 1 - keep))

    def pull(self, *, takes_values: bool) -> None:
        """Take the newest centre; with `takes_values` the model does, too."""
        self.vector.pull(self.centre)
        if takes_values:
            self.take(self.centre)
            return
        own = torch.empty_like(self.centre)
        self._fragment.read(own)
        self.is_dirty = not torch.equal(own, self._fragment.shown(self.centre))


def together(counters: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the counters of several vectors at the same servers as those of one.

    Bytes and numbers of updates are added up; what belongs to a shard or a server is that of the first vector.

    Example:
        >>> together([{"updates": 2, "sent_bytes": [1, 2]}, {"updates": 3, "sent_bytes": [4, 5]}])
        {'updates': 5, 'sent_bytes': [5, 7]}
    """
    first, *others = counters
    found = dict(first)
    for name in ("updates", "bytes", "lost_parts"):
        if name in found:
            found[name] = sum(each.get(name, 0) for each in counters)
    for name in ("sent_bytes", "received_bytes", "staleness"):
        if others and name in found:
            found[name] = [sum(column) for column in zip(*(each.get(name, []) for each in counters), strict=False)]
    return found

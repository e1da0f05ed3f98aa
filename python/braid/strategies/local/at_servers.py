# SPDX-License-Identifier: Apache-2.0
"""Local steps with the centre at servers, which outlive workers: rounds of a quorum, or no rounds at
all.

A worker pushes centre - x as a gradient, and the server's rule is the outer optimizer. In a round of a quorum the
gradient is the mean of those that came in time. Without rounds each push is applied as it comes.
"""

from typing import Any

import torch
from torch import Tensor

from braid.strategies.agreement import Agreement
from braid.strategies.local.fragments import Fragment
from braid.strategies.local.options import LocalOptions
from braid.strategies.local.outer import try_out
from braid.strategies.local.preparation import LocalPrepared
from braid.strategies.local.speeds import Speeds
from braid.strategies.options import Options
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


class LocalAtServers:
    """Pushes every few steps, and takes the centre that comes back.

    Attributes:
        rounds: how many pushes are finished.
        clock: steps since the last push began.
    """

    def __init__(self, agreed: Agreement[LocalPrepared], options: LocalOptions, timeout_s: float) -> None:
        """Connect to the servers. All begin with worker 0's values; a late worker begins at the centre."""
        self.meeting, prepared, servers = agreed.meeting, agreed.prepared, agreed.servers
        self._options, self._buffers = options, prepared.buffers
        self._packing = prepared.packing
        self._all = Fragment(self._packing.entries, 0, self._packing.elements)
        rule, self._numbers = rule_of(prepared, options, self.meeting.workers)
        settings = f"{prepared.kind} packing {self._packing.digest()} {' '.join(options.describe())}"
        codec = options.compression
        self._vector = SharedVector(
            *(self.meeting, "parameters", servers),
            elements=self._packing.elements,
            rule=rule,
            settings=settings,
            options=Options(mode=options.mode, compression=codec, pull_compression=codec),
            timeout_s=timeout_s,
        )
        self._centre = torch.zeros(self._packing.elements)  # as this worker last took it
        self._all.read(self._vector.update)
        self._vector.start(self._centre)
        self._all.write(self._centre)
        self._speeds: Speeds | None = None
        if options.follow_speed:
            self._speeds = Speeds(self.meeting, servers, settings, timeout_s, options.steps_per_round)
        self.rounds = self.clock = 0
        self._is_under_way = False
        if self._buffers is not None:
            self._buffers.start(self.meeting, servers, settings, timeout_s)

    @property
    def steps_per_round(self) -> int:
        """Steps of this worker from one push to the next."""
        steps = self._speeds.steps if self._speeds else self._options.steps_per_round
        return max(steps, self._options.fragment_sync_delay + 1)

    def step(self) -> None:
        """Note a step of the optimizer; push and take what is due."""
        self.clock += 1
        if self._is_under_way and self.clock >= self._options.fragment_sync_delay:
            self.finish()
        if self.clock >= self.steps_per_round:
            if self._speeds:
                self._speeds.tell(self.clock, self._vector.stats())
            self._begin()
            if not self._options.fragment_sync_delay:
                self.finish()

    def finish(self) -> None:
        """Wait for the push under way, if any, and take the centre that it brings."""
        if not self._is_under_way:
            return
        self._is_under_way = False
        self._vector.finish()
        self.rounds += 1
        self._take(self._vector.out, self._options.fragment_update_alpha)
        if self._buffers is not None:
            self._buffers.finish()
        if self._speeds:
            self._speeds.start_clock()

    def settle(self) -> None:
        """Push what has not been pushed. Nobody waits for this worker until its next push."""
        self.finish()
        if self.clock:
            self._begin()
            self.finish()
        if self._options.quorum is not None:
            self._vector.push_pull(self._numbers, 0.0)
            self._vector.finish()
            self._take(self._vector.out, 0.0)

    def centre(self) -> list[Tensor]:
        """Return the centre's newest parameters and float buffers, in the order of the packings.

        While a round is under way it is the centre that this worker took last.
        """
        centre = self._centre
        if not (self._is_under_way and self._options.quorum is not None):
            self._vector.pull(centre := torch.empty_like(centre))
        return self._packing.views(centre) + (self._buffers.look() if self._buffers else [])

    def pull(self, *, takes_values: bool) -> None:
        """Take the newest centre; with `takes_values` the model does, too."""
        self._vector.pull(self._centre)
        if takes_values:
            self._take(self._centre, 0.0)
            if self._buffers is not None:
                self._buffers.pull()

    def snapshot(self) -> dict[str, Any]:
        """Return the servers' values and state, of parameters and of buffers."""
        self.finish()
        shared = self._buffers.vector if self._buffers else None
        return {"parameters": self._vector.snapshot(), "buffers": shared.snapshot() if shared else None}

    def restore(self, saved: dict[str, Any]) -> None:
        """Give the servers what snapshot() returned."""
        self._vector.restore(saved["parameters"])
        if self._buffers is not None and self._buffers.vector is not None and saved["buffers"] is not None:
            self._buffers.vector.restore(saved["buffers"])

    def stats(self) -> dict[str, Any]:
        """Return the counters of the parameters' vector, and how long this thread has waited."""
        shared = self._buffers.vector if self._buffers else None
        exposed_us = self._vector.exposed_us + (shared.exposed_us if shared else 0.0)
        last = {"last_versions": self._vector.versions, "last_staleness": self._vector.staleness}
        own = {"rounds": self.rounds, "steps_per_round": self.steps_per_round, "exposed_us": exposed_us}
        return {**self._vector.stats(), **last, **own}

    def close(self, *, wait: bool) -> None:
        """Leave the service, as SharedVector.close()."""
        self._vector.close(wait=wait)
        if self._speeds:
            self._speeds.close(wait=wait)
        if self._buffers is not None:
            self._buffers.close(wait=wait)

    def _begin(self) -> None:
        update = self._vector.update
        self._all.read(update)
        torch.sub(self._all.shown(self._centre), update, out=update)
        self._vector.begin_step()
        self._vector.push_pull(self._numbers)
        if self._buffers is not None:
            self._buffers.begin()
        self._is_under_way = True
        self.clock = 0

    def _take(self, centre: Tensor, keep: float) -> None:
        if self._centre is not centre:
            self._centre.copy_(centre)
        if not keep:
            self._all.write(self._centre)
            return
        own = torch.empty_like(self._centre)
        self._all.read(own)
        self._all.write(own.lerp_(self._centre, 1 - keep))

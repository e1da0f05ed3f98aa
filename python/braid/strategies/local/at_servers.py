# SPDX-License-Identifier: Apache-2.0
"""Local steps with the centre at servers, which outlive workers: rounds of a quorum, or no rounds at
all.

A worker pushes centre - x as a gradient, and the server's rule is the outer optimizer. In a round of a quorum the
gradient is the mean of those that came in time. Without rounds each push is applied as it comes. With fragments
each has a vector of its own at the servers, and so a quorum of its own.

The turns of fragments are agreed, too. Before a push a worker asks how many rounds each fragment has had. The one
with the fewest is due. So a worker that was slow for some rounds goes on where the others are. Two workers never
wait for each other in two fragments: a push waits only in the fragment with the fewest rounds, which is the same
for all. A push for a round that is over meanwhile counts in the next one, and does not wait.
"""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from braid.strategies.local.fragments import cut
from braid.strategies.local.pieces import Piece, rule_of, together
from braid.strategies.local.speeds import Speeds
from braid.strategies.local.terms import Terms
from braid.strategies.options import Options
from braid.strategies.service import SharedVector


class LocalAtServers:
    """Pushes every few steps, and takes the centre that comes back.

    Attributes:
        rounds: how many pushes are finished.
        clock: steps since the last push began.
        parts: the fragments, in the order of their turns; one without fragments.
    """

    def __init__(self, terms: Terms) -> None:
        """Connect to the servers. All begin with worker 0's values; a late worker begins at the centre."""
        agreed, options, timeout_s = terms.agreed, terms.options, terms.timeout_s
        self.meeting, prepared, servers = agreed.meeting, agreed.prepared, agreed.servers
        self._options, self._buffers = options, prepared.buffers
        self._packing = prepared.packing
        rule, [(_, numbers)] = rule_of(prepared, options, self.meeting.workers)
        settings = f"{prepared.kind} packing {self._packing.digest()} {' '.join(options.describe())}"
        codec = options.compression
        fragments = cut(self._packing.entries, self._packing.elements, options.num_fragments)
        self.parts = [
            Piece(
                fragment,
                SharedVector(
                    *(self.meeting, part, servers),
                    elements=fragment.elements,
                    rule=rule,
                    settings=settings,
                    options=Options(mode=options.mode, compression=codec, pull_compression=codec),
                    timeout_s=timeout_s,
                ),
                numbers,
            )
            for part, fragment in zip(options.parts, fragments, strict=True)
        ]
        self._speeds: Speeds | None = None
        if options.follow_speed:
            self._speeds = Speeds(self.meeting, servers, settings, timeout_s, options.steps_per_round)
        self.rounds = self.clock = self._turn = 0
        self._under_way: list[Piece] = []
        if self._buffers is not None:
            self._buffers.start(self.meeting, servers, settings, timeout_s)

    @property
    def steps_per_round(self) -> int:
        """Steps of this worker from one push to the next; 1 while it warms up."""
        if self._is_warming_up:
            return 1
        steps = self._speeds.steps if self._speeds else self._options.steps_per_round
        return max(steps, self._options.fragment_sync_delay + 1)

    def step(self) -> None:
        """Note a step of the optimizer; push and take what is due."""
        self.clock += 1
        for part in self.parts:
            part.is_dirty = True
        delay = self._options.fragment_sync_delay
        if self._under_way and self.clock >= delay:
            self.finish()
        if self.clock < self.steps_per_round:
            return
        if self._is_warming_up:
            self._begin(self.parts, min(part.rounds for part in self.parts))
            self._end(keep=0.0)
            return
        if self._speeds:
            self._speeds.tell(self.clock, self.parts[0].vector.stats())
        self._begin(*self._due())
        if not delay:
            self.finish()

    def finish(self) -> None:
        """Wait for the push under way, if any, and take the centre that it brings."""
        self._end(keep=self._options.fragment_update_alpha)

    def settle(self) -> None:
        """Push what has not been pushed, and take the centre. Nobody waits for this worker until its next push."""
        self.finish()
        if dirty := [part for part in self.parts if part.is_dirty]:
            self._begin(dirty, None)
            self.finish()
        if self._options.quorum is not None:
            for part in self.parts:
                part.vector.rest()
            for part in self.parts:
                part.vector.pull(part.centre)
        for part in self.parts:
            part.take(part.centre)

    def centre(self) -> list[Tensor]:
        """Return the centre's newest parameters and float buffers, in the order of the packings.

        Of what a round is about that is under way, it is the centre that this worker took last.
        """
        found = []
        for part in self.parts:
            if part in self._under_way and self._options.quorum is not None:
                found.append(part.centre)
            else:
                part.vector.pull(newest := torch.empty_like(part.centre))
                found.append(newest)
        return self._packing.views(torch.cat(found)) + (self._buffers.look() if self._buffers else [])

    def pull(self, *, takes_values: bool) -> None:
        """Take the newest centre; with `takes_values` the model does, too."""
        for part in self.parts:
            part.pull(takes_values=takes_values)
        if takes_values and self._buffers is not None:
            self._buffers.pull()

    def take_centre(self) -> None:
        """Take the newest centre, once all have settled."""
        self.pull(takes_values=True)

    def snapshot(self) -> dict[str, Any]:
        """Return the servers' values and state, of parameters and of buffers."""
        self.finish()
        shared = self._buffers.vector if self._buffers else None
        of_parts = [part.vector.snapshot() for part in self.parts]
        return {"parameters": of_parts, "buffers": shared.snapshot() if shared else None}

    def end_requests(self) -> None:
        """Wait for the push under way. Nothing of this worker changes the centre before its next step."""
        self.finish()

    def present(self) -> Collection[int]:
        """Return the workers that can still push something."""
        return self.parts[0].vector.present()

    def restore(self, saved: dict[str, Any]) -> None:
        """Give the servers what snapshot() returned."""
        for part, of_part in zip(self.parts, saved["parameters"], strict=True):
            part.vector.restore(of_part)
        if self._buffers is not None and self._buffers.vector is not None and saved["buffers"] is not None:
            self._buffers.vector.restore(saved["buffers"])

    def stats(self) -> dict[str, Any]:
        """Return the counters of the parameters' vectors, and how long this thread has waited."""
        vectors = [part.vector for part in self.parts]
        waits = [*vectors, *([self._buffers.vector] if self._buffers and self._buffers.vector else [])]
        last = {
            "last_versions": [version for vector in vectors for version in vector.versions],
            "last_staleness": max(vector.staleness for vector in vectors),
        }
        own = {"rounds": self.rounds, "steps_per_round": self.steps_per_round, "fragments": len(vectors)}
        exposed_us = sum(vector.exposed_us for vector in waits)
        return {**together([vector.stats() for vector in vectors]), **last, **own, "exposed_us": exposed_us}

    def close(self, *, wait: bool) -> None:
        """Leave the service, as SharedVector.close()."""
        for part in self.parts:
            part.vector.close(wait=wait)
        if self._speeds:
            self._speeds.close(wait=wait)
        if self._buffers is not None:
            self._buffers.close(wait=wait)

    @property
    def _is_warming_up(self) -> bool:
        """Whether rounds take the mean: servers count them, so all workers agree."""
        return min(part.rounds for part in self.parts) < self._options.warmup_steps

    def _due(self) -> tuple[list[Piece], int | None]:
        """Return whose turn it is; and how many rounds it has had, where all have to agree about turns."""
        self._turn += 1
        if len(self.parts) == 1 or self._options.quorum is None:
            return [self.parts[(self._turn - 1) % len(self.parts)]], None
        looks = [part.vector.begin_look() for part in self.parts]
        for look in looks:
            look.wait()
        rounds = [min(look.versions) for look in looks]
        return [self.parts[rounds.index(min(rounds))]], min(rounds)

    def _begin(self, parts: list[Piece], round_: int | None) -> None:
        for part in parts:
            part.begin(round_ if len(self.parts) > 1 else None)
        if self._buffers is not None:
            self._buffers.begin()
        self._under_way = parts
        self.clock = 0

    def _end(self, *, keep: float) -> None:
        parts, self._under_way = self._under_way, []
        if not parts:
            return
        for part in parts:
            part.finish(keep)
        self.rounds += 1
        if self._buffers is not None:
            self._buffers.finish()
        if self._speeds:
            self._speeds.start_clock()

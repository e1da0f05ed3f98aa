# SPDX-License-Identifier: Apache-2.0
"""What a worker exchanges with the servers: updates for parameters, and the state of a checkpoint."""

from collections.abc import Collection
from typing import Any, Protocol

import torch
from torch import Tensor

from braid.strategies.agreement import Agreement
from braid.strategies.options import Options
from braid.strategies.preparation import Prepared
from braid.strategies.rules import Groups, Numbers
from braid.strategies.service import SharedVector
from braid.strategies.store import Meeting


class Steps(Protocol):
    """How a worker steps with others, and what they have in common."""

    steps: int
    skipped: int

    @property
    def meeting(self) -> Meeting:
        """Where the workers have met."""

    def advance(self, groups: Groups, *, skips: bool, scale: float) -> None:
        """Take a step with the gradients of now, times `scale`; with `skips` without them."""

    def finish(self) -> None:
        """Wait for what is under way."""

    def settle(self) -> None:
        """Wait for what is under way, and answer whoever has to take more steps."""

    def pull(self) -> None:
        """Take the newest values."""

    def snapshot(self) -> dict[str, Any]:
        """Return the servers' values and state."""

    def present(self) -> Collection[int]:
        """Return the workers that can still push something, as far as this one knows."""

    def restore(self, saved: dict[str, Any]) -> None:
        """Give the servers what snapshot() returned."""

    def stats(self) -> dict[str, Any]:
        """Return counters."""

    def close(self, *, wait: bool = True) -> None:
        """Leave."""


class Exchange:
    """The parameters and buffers of one worker, at the servers.

    A step finishes the exchange of the step before, then begins its own. With a delay of 0 it finishes that, too.
    """

    def __init__(
        self,
        agreed: Agreement[Prepared],
        options: Options,
        timeout_s: float,
        update: Tensor | None = None,
        part: float | None = None,
    ) -> None:
        """Connect to the servers. Parameters and buffers become worker 0's. Raises as SharedVector does.

        `update` is memory for the packed update; new memory by default. `part`: as Buffers.start().
        """
        self.steps = self.skipped = 0  # pushed updates; steps that a GradScaler skipped
        self._options = options
        self.meeting, self.servers, self._prepared = agreed.meeting, agreed.servers, agreed.prepared
        self._packing, self._rule, self._buffers = (
            *(self._prepared.packing, self._prepared.rule),
            self._prepared.buffers,
        )
        settings = f"{' '.join(self._prepared.describe(options)[:2])} packing {self._packing.digest()}"
        settings += f" {' '.join(options.describe())}"
        self._vector = SharedVector(
            *(self.meeting, "parameters", self.servers),
            elements=self._packing.elements,
            rule=self._rule.text,
            settings=settings,
            options=options,
            timeout_s=timeout_s,
            update=update,
        )
        self._updates, self._outs = self._packing.views(self._vector.update), self._packing.views(self._vector.out)
        torch._foreach_copy_(self._updates, self._packing.tensors)
        self._vector.start()
        self._take()
        if self._buffers is not None:
            self._buffers.start(self.meeting, self.servers, settings, timeout_s, part)

    def advance(self, groups: Groups, *, skips: bool, scale: float) -> None:
        """Take a step: push the update of the gradients of now, times `scale`, and pull.

        With `skips` nothing is pushed. In mode "sync" zeros are, so that no other worker waits.
        """
        self.begin_step()
        self.finish()
        if skips:
            self.skipped += 1
            if self._options.mode != "sync":
                return
            self.begin_without_update(groups)
        else:
            self.begin(groups, scale)
        self.steps += 1
        if not self._options.delay:
            self.finish()

    def begin(self, groups: Groups, scale: float = 1.0) -> None:
        """Start to push this step's update, times `scale`, and to pull the values after it."""
        numbers = self._rule.numbers(groups, self.meeting.workers)
        self._rule.write(self._updates, scale, groups)
        self._push(numbers)

    def begin_written(self, numbers: Numbers, scale: float, *, with_buffers: bool) -> None:
        """Start to push what the memory of the update has, times `scale`, and to pull the values after it."""
        self._push(numbers, scale, with_buffers=with_buffers)

    def begin_without_update(self, groups: Groups) -> None:
        """Take part in a round with an update of zeros."""
        self._vector.update.zero_()
        self._push(self._rule.numbers(groups, self.meeting.workers))

    def begin_step(self) -> None:
        """Call it before finish(): the gradients of now were computed with the values of now."""
        self._vector.begin_step()

    def finish(self) -> None:
        """Wait for the exchange under way, and take the values that it brought. Do nothing if there is none."""
        if self._vector.finish():
            self._take()
        if self._buffers is not None:
            self._buffers.finish()

    def settle(self) -> None:
        """Finish the exchange under way. Nobody waits for this worker until its next push."""
        self.finish()
        if self._options.mode != "async":
            self._vector.rest()

    def pull(self) -> None:
        """Take the servers' newest values."""
        self.finish()
        self._vector.pull()
        self._take()
        if self._buffers is not None:
            self._buffers.pull()

    def snapshot(self, *, keeps_model: bool = False) -> dict[str, Any]:
        """Return the servers' values and state, of parameters and of buffers.

        They have the update under way. With `keeps_model` the model takes it when it would have done so anyhow.
        """
        shared = self._buffers.vector if self._buffers else None
        if keeps_model:
            for vector in (self._vector, *([shared] if shared else [])):
                vector.wait()
        else:
            self.finish()
        return {"parameters": self._vector.snapshot(), "buffers": shared.snapshot() if shared else None}

    def present(self) -> Collection[int]:
        """Return the workers that can still push something, as far as this one knows."""
        return self._vector.present()

    def restore(self, saved: dict[str, Any]) -> None:
        """Give the servers what snapshot() returned."""
        self.finish()
        self._vector.restore(saved["parameters"])
        if self._buffers is not None and self._buffers.vector is not None and saved["buffers"] is not None:
            self._buffers.vector.restore(saved["buffers"])

    def stats(self) -> dict[str, Any]:
        """Return the counters of the parameters' vector, and the time that this thread has waited."""
        shared = self._buffers.vector if self._buffers else None
        exposed_us = self._vector.exposed_us + (shared.exposed_us if shared else 0.0)
        last = {"last_versions": self._vector.versions, "last_staleness": self._vector.staleness}
        own = {"steps": self.steps, "skipped": self.skipped, "exposed_us": exposed_us}
        return {**self._vector.stats(), **last, **own}

    def close(self, *, wait: bool = True, why: str = "") -> None:
        """Leave the service, as SharedVector.close()."""
        # First the vector whose workers may wait for this one.
        self._vector.close(wait=wait, why=why)
        if self._buffers is not None:
            self._buffers.close(wait=wait)

    def _push(self, numbers: Numbers, scale: float = 1.0, *, with_buffers: bool = True) -> None:
        self._vector.push_pull(numbers, scale)
        if self._buffers is not None and with_buffers:
            self._buffers.begin()

    def _take(self) -> None:
        torch._foreach_copy_(self._packing.tensors, self._outs)

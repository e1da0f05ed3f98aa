# SPDX-License-Identifier: Apache-2.0
"""Elastic averaging with the centre at parameter servers: workers come in turns, or as they are ready."""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from braid.strategies.agreement import Agreement
from braid.strategies.elastic.options import ElasticOptions
from braid.strategies.elastic.preparation import ElasticPrepared
from braid.strategies.options import Options
from braid.strategies.service import SharedVector


class CentreAtServers:
    """The servers' rule "elastic": a worker sends its parameters x and gets e = alpha (x - centre); centre += e.

    Attributes:
        rounds: how many exchanges are finished.
    """

    def __init__(
        self, agreed: Agreement[ElasticPrepared], options: ElasticOptions, alpha: float, timeout_s: float
    ) -> None:
        """Connect to the servers. All begin with worker 0's values; a late worker begins at the centre."""
        meeting, prepared = agreed.meeting, agreed.prepared
        self.meeting = meeting
        self._packing, self._buffers, self._alpha = prepared.packing, prepared.buffers, alpha
        self._mode = options.mode
        settings = f"elastic packing {self._packing.digest()} {' '.join(options.describe())}"
        self._vector = SharedVector(
            *(meeting, "parameters", agreed.servers),
            elements=self._packing.elements,
            rule="elastic",
            settings=settings,
            options=Options(mode=options.mode, consistency=options.consistency),
            timeout_s=timeout_s,
        )
        # If a server dies, a worker gives the next one what it has pulled last, or the x that it has sent. So the
        # centre is never pulled where the elastic difference arrives. While an exchange uses both vectors, a third
        # one takes the centre.
        self._apart: Tensor | None = None
        self._updates, self._outs = self._packing.views(self._vector.update), self._packing.views(self._vector.out)
        torch._foreach_copy_(self._updates, self._packing.tensors)
        self._vector.start(self._vector.update)
        torch._foreach_copy_(self._packing.tensors, self._updates)
        self.rounds = 0
        self.is_under_way = False
        if self._buffers is not None:
            self._buffers.start(meeting, agreed.servers, settings, timeout_s)

    def begin(self) -> None:
        """Start to send the parameters of now."""
        torch._foreach_copy_(self._updates, self._packing.tensors)
        self._vector.push_pull([(self._packing.elements, {"alpha": self._alpha})])
        if self._buffers is not None:
            self._buffers.begin()
        self.is_under_way = True

    def finish(self) -> None:
        """Wait for the exchange under way, if any, and move the parameters by what came back."""
        if not self.is_under_way:
            return
        self.is_under_way = False
        self._vector.finish()
        torch._foreach_sub_(self._packing.tensors, self._outs)
        self.rounds += 1
        if self._buffers is not None:
            self._buffers.finish()

    def centre(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the centre's newest parameters and float buffers, in the order of the packings.

        They are valid until the next begin().
        """
        values = self._vector.update
        if self.is_under_way:
            if self._apart is None:
                self._apart = torch.zeros(self._packing.elements, dtype=torch.float32)
            values = self._apart
        self._vector.pull(values)
        return self._packing.views(values), self._buffers.look() if self._buffers else []

    def present(self) -> Collection[int]:
        """Return the workers that can still send something."""
        return self._vector.present()

    def set_centre(self, parameters: Tensor, buffers: Tensor) -> None:
        """Give the servers a centre. One worker calls this, the others call centre() afterwards."""
        self._set(self._vector, parameters)
        if self._buffers is not None and self._buffers.vector is not None:
            self._set(self._buffers.vector, buffers)

    def _set(self, vector: SharedVector, values: Tensor) -> None:
        saved = vector.snapshot()
        vector.restore({**saved, "vectors": [values, *saved["vectors"][1:]]})

    def settle(self) -> None:
        """Finish the exchange under way. Nobody waits for this worker until its next exchange."""
        self.finish()
        if self._mode != "async":
            self._vector.rest()

    def stats(self) -> dict[str, Any]:
        """Return the counters of the parameters' vector, and how long this thread has waited."""
        shared = self._buffers.vector if self._buffers else None
        exposed_us = self._vector.exposed_us + (shared.exposed_us if shared else 0.0)
        last = {"last_versions": self._vector.versions, "last_staleness": self._vector.staleness}
        kept = {"vector_bytes": self._vector.nbytes + (0 if self._apart is None else self._apart.nbytes)}
        return {**self._vector.stats(), **last, **kept, "exposed_us": exposed_us}

    def close(self, *, wait: bool) -> None:
        """Leave the service, as SharedVector.close()."""
        self._vector.close(wait=wait)
        if self._buffers is not None:
            self._buffers.close(wait=wait)

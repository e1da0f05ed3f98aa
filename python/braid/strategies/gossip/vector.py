# SPDX-License-Identifier: Apache-2.0
"""The vector of one worker, at a small parameter server inside that worker. Only this file knows the core.

The vector has parameters, float buffers, and a tail: the worker's weight, its steps, the seconds of a step.
All operations are updates of the rule "sgd", with other numbers: ``x -= rate (decay x - u)``.
"""

from typing import Any

import torch
from torch import Tensor

from braid import _core
from braid._array.rendezvous.stores import KeyValueStore
from braid.strategies.averages import RULE, towards

TAIL = 4
WEIGHT, STEPS, STEP_S = -TAIL, -TAIL + 1, -TAIL + 2
_LATE = 1  # of the service of a late worker, its members begin with its own number 0


class WorkerVector:
    """One worker's vector, seen from this worker. Any thread may call; calls wait until they are answered.

    Calls on values return the version: how many updates were in the values, after the call.

    Attributes:
        owner: the number of the worker.
    """

    def __init__(
        self,
        store: KeyValueStore,
        name: str,
        *,
        owner: int,
        me: int,
        workers: int,
        elements: int,
        parameters: int,
        settings: str,
        timeout_s: float,
    ) -> None:
        """Connect with the worker. For workers of the beginning it blocks until all of them have come.

        Args:
            store: where they meet.
            name: of the strategy.
            owner: whose vector it is.
            me: the number of this worker.
            workers: how many begin together.
            elements: numbers of the vector, with the tail.
            parameters: how many of them are parameters.
            settings: text that all workers must have.
            timeout_s: limit of the beginning, and of each call.
        """
        self.owner = owner
        self._is_late_owner = owner >= workers
        if self._is_late_owner:
            member, servers, first = (0 if me == owner else _LATE + me), [0], 1
        else:
            member, servers, first = me, [owner], workers
        self._service = _core.ParameterService(
            store,
            store.apart() if me == owner else store,  # the server's: late workers come through it
            f"{name}/of/{owner}",
            member=member,
            workers=first,
            servers=servers,
            elements=elements,
            shares=None,
            rule=RULE,
            settings=settings,
            mode="async",
            staleness=0,
            staleness_rate=False,
            timeout_s=timeout_s,
            late=member >= first,
            push_codec="",
            pull_codec="",
            consistency="atomic",
        )
        self._add = [(elements, {"rate": 1.0})]
        ends = [(parameters, {"rate": 1.0}), (elements - TAIL, towards(1.0)), (elements, {"rate": 1.0})]
        begins = [0, parameters, elements - TAIL]
        self._move = [part for part, begin in zip(ends, begins, strict=True) if part[0] > begin]
        self._average = [(elements - TAIL, towards(0.5)), (elements, {"rate": 0.0})]

    def install(self, values: Tensor) -> None:
        """Set all values. Only the owner does that. Calls of others wait for the first time."""
        self._service.restore(values.numpy(), [0])

    def pull(self, out: Tensor) -> int:
        """Get the values."""
        return _version_of(self._service.pull(out.numpy()))

    def add(self, difference: Tensor, out: Tensor | None = None) -> int:
        """Add a difference, and get the values after that."""
        return self._push(difference, out, self._add, -1.0)  # the rule subtracts gradients

    def subtract(self, difference: Tensor) -> int:
        """Subtract a difference."""
        return self._push(difference, None, self._add, 1.0)

    def move(self, update: Tensor, out: Tensor | None = None) -> int:
        """Add `update` to parameters and tail, put its float buffers in place of these, and get the values."""
        return self._push(update, out, self._move, -1.0)

    def version(self) -> int:
        """Return how many updates the values have had."""
        return _version_of(self._service.look())

    def average(self, other: Tensor, out: Tensor | None = None) -> int:
        """Put the mean of the values and `other` in their place, at once; get it. The tail stays as it is."""
        return self._push(other, out, self._average, -1.0)

    def peers(self) -> set[int]:
        """Return the numbers of the workers that are connected with this one. Only the owner knows them."""
        members = self._service.stats()["workers"]
        if not self._is_late_owner:
            return set(members)
        return {self.owner if member == 0 else member - _LATE for member in members}

    def stats(self) -> dict[str, Any]:
        """Return the service's counters."""
        return self._service.stats()

    def failure(self) -> str | None:
        """Return why this worker cannot go on, or None."""
        return self._service.failure()

    def close(self) -> None:
        """Leave at once."""
        self._service.close(0.0)

    def _push(
        self, update: Tensor, out: Tensor | None, numbers: list[tuple[int, dict[str, float]]], scale: float
    ) -> int:
        result = None if out is None else out.numpy()
        return _version_of(self._service.push_pull(update.numpy(), result, numbers, scale))


def _version_of(request: Any) -> int:
    request.wait()
    return int(request.versions[0])


def new_vector(elements: int) -> Tensor:
    """Return zeros for parameters and tail."""
    return torch.zeros(elements + TAIL, dtype=torch.float32)

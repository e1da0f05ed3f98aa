# SPDX-License-Identifier: Apache-2.0
"""One packed vector at the parameter service, and the request under way. Only this file knows the core."""

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from braid import _core
from braid.strategies.options import Options
from braid.strategies.store import Meeting


class SharedVector:
    """A vector of float32 whose newest values the servers have.

    Attributes:
        update: what the next push sends. Do not touch it while a request is under way.
        out: the values of the last pull. Do not touch it while a request is under way.
        exposed_us: how long this thread has waited for requests.
    """

    def __init__(
        self,
        meeting: Meeting,
        part: str,
        servers: list[int],
        *,
        elements: int,
        rule: str,
        settings: str,
        options: Options,
        timeout_s: float,
    ) -> None:
        """Connect to the servers. Blocks until all of them are there.

        Args:
            meeting: where members meet.
            part: tells the vectors of a strategy apart.
            servers: members that hold shards.
            elements: length of the vector.
            rule: how servers apply updates.
            settings: text that all members must have.
            options: mode and staleness.
            timeout_s: limit of the beginning and of each request.

        Raises:
            ValueError: another member has other settings.
            CommunicatorError: a member did not come, or died; the message names it.
        """
        self._core = _core.ParameterService(
            meeting.store.apart(),
            f"{meeting.name}/{part}",
            member=meeting.member,
            workers=meeting.workers,
            servers=servers,
            elements=elements,
            shares=None,
            rule=rule,
            settings=settings,
            mode=options.mode,
            staleness=options.bound,
            staleness_rate=options.staleness_rate,
            timeout_s=timeout_s,
            late=meeting.is_late,
        )
        self.update = torch.zeros(elements)
        self.out = torch.zeros(elements)
        self.exposed_us = 0.0
        self._update, self._out = self.update.numpy(), self.out.numpy()
        self._request: Any = None

    def start(self) -> None:
        """Make worker 0's values in `update` the servers', and pull them. A late member only pulls."""
        self._core.start(self._update, self._out)

    def push_pull(self, numbers: list[tuple[int, dict[str, float]]], scale: float = 1.0) -> None:
        """Start to push `update`, times `scale`, and to pull into `out`."""
        self._request = self._core.push_pull(self._update, self._out, numbers, scale)

    def finish(self) -> bool:
        """Wait for the request under way. Return whether there was one."""
        request, self._request = self._request, None
        if request is None:
            return False
        begun = time.perf_counter()
        try:
            request.wait()
        finally:
            self.exposed_us += 1e6 * (time.perf_counter() - begun)
        return True

    def pull(self) -> None:
        """Pull the newest values into `out`."""
        self._core.pull(self._out).wait()

    def snapshot(self) -> dict[str, Any]:
        """Return the servers' values and the rule's state, as tensors and numbers."""
        saved: dict[str, Any] = _as_tensors(self._core.snapshot())
        return saved

    def restore(self, saved: dict[str, Any]) -> None:
        """Give the servers what snapshot() returned."""
        self._core.restore(_as_arrays(saved))

    def stats(self) -> dict[str, Any]:
        """Return the service's counters."""
        return dict(self._core.stats())

    def close(self, *, wait: bool = True) -> None:
        """Leave the service. A server first waits until all workers have left, unless `wait` is False."""
        core, self._core = self._core, None
        if wait:
            core.close()


def _as_tensors(value: Any) -> Any:
    """Replace arrays by tensors, which torch.load(weights_only=True) takes."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, dict):
        return {key: _as_tensors(one) for key, one in value.items()}
    return [_as_tensors(one) for one in value] if isinstance(value, (list, tuple)) else value


def _as_arrays(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.numpy()
    if isinstance(value, dict):
        return {key: _as_arrays(one) for key, one in value.items()}
    return [_as_arrays(one) for one in value] if isinstance(value, list) else value

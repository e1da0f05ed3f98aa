# SPDX-License-Identifier: Apache-2.0
"""Rounds of a quorum in NumPy: what workers and centre must have, given which push counted in which round."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Gradient = Callable[[int, int, np.ndarray], np.ndarray]  # worker, step, parameters


@dataclass(frozen=True)
class Push:
    """A push of one worker: of a fragment, in which round it counted, and of which version the answer was."""

    fragment: int
    counted: int
    taken: int


def replay_quorum(
    logs: list[list[list[Push]]],
    initial: np.ndarray,
    ends: list[int],
    gradient: Gradient,
    *,
    rate: float,
    outer_rate: float,
    outer_momentum: float,
    means: int = 0,
) -> list[dict[int, np.ndarray]]:
    """Return the values of each fragment by version, as far as the logs go.

    Args:
        logs: by worker and step: the pushes after that step.
        initial: parameters at the beginning; shape (elements,).
        ends: of the fragments.
        gradient: of a worker.
        rate: of the workers' SGD.
        outer_rate: of the outer SGD with Nesterov momentum.
        outer_momentum: its momentum.
        means: so many rounds of each fragment take the mean.
    """
    ranges = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
    values = [{0: initial[part].astype(np.float64)} for part in ranges]
    buffers = [np.zeros(part.stop - part.start) for part in ranges]
    awaited = Counter((push.fragment, push.counted) for log in logs for step in log for push in step)
    brought: dict[tuple[int, int], list[np.ndarray]] = {}

    def close(fragment: int, number: int) -> None:
        """Apply a round if all that counts in it is there, and the round before is over."""
        key = fragment, number
        if len(brought.get(key, [])) < awaited[key] or not awaited[key] or number - 1 not in values[fragment]:
            return
        mean = np.mean(brought.pop(key), axis=0)
        if number <= means:
            moved = mean
        else:
            buffers[fragment] = outer_momentum * buffers[fragment] + mean
            moved = outer_rate * (mean + outer_momentum * buffers[fragment])
        values[fragment][number] = values[fragment][number - 1] - moved
        close(fragment, number + 1)

    def work(worker: int) -> object:
        own = initial.astype(np.float64)
        base = own.copy()
        for step, pushes in enumerate(logs[worker]):
            own = own - rate * gradient(worker, step, own)
            for push in pushes:
                part = ranges[push.fragment]
                brought.setdefault((push.fragment, push.counted), []).append(base[part] - own[part])
                close(push.fragment, push.counted)
            for push in pushes:
                while push.taken not in values[push.fragment]:
                    yield None
                part = ranges[push.fragment]
                own[part] = base[part] = values[push.fragment][push.taken]

    going = [work(worker) for worker in range(len(logs))]
    for _ in range(10 * sum(awaited.values()) + 10):
        going = [one for one in going if next(one, "over") is None]  # type: ignore[call-overload]
    assert not going, "a worker has values of a round that cannot have been"
    return values

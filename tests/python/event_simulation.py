# SPDX-License-Identifier: Apache-2.0
"""Asynchronous workers without clocks, threads or a network: the order of their updates, and what comes of them.

A log is a list of events. `simulate` writes one for given step times. A test writes one from what a real service
said. `replay` computes the parameters that the log must lead to.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy_rules import Numbers, NumpyRule

Gradient = Callable[[int, int, np.ndarray], np.ndarray]  # worker, its step, values -> gradient


@dataclass(frozen=True)
class Event:
    """The update of a worker's step, computed from the values after `base` updates of all."""

    worker: int
    step: int
    base: int


def simulate(step_times: Sequence[float], steps: int) -> list[Event]:
    """Return the order of updates of workers that take so long for a step each, and nothing for an exchange."""
    ends = [(time, worker) for worker, time in enumerate(step_times)]
    heapq.heapify(ends)
    bases, made = [0] * len(step_times), [0] * len(step_times)
    log = []
    while len(log) < steps:
        now, worker = heapq.heappop(ends)
        log.append(Event(worker, made[worker], bases[worker]))
        made[worker] += 1
        bases[worker] = len(log)
        heapq.heappush(ends, (now + step_times[worker], worker))
    return log


def staleness(log: Sequence[Event], worker: int | None = None) -> Counter[int]:
    """Return how often each staleness occurs, of one worker or of all."""
    return Counter(place - event.base for place, event in enumerate(log) if worker in (None, event.worker))


def replay(
    log: Sequence[Event],
    initial: np.ndarray,
    gradient: Gradient,
    rule: str,
    numbers: dict[str, float],
    *,
    divide_by_staleness: bool = False,
) -> list[np.ndarray]:
    """Return the values after 0, 1, 2, ... events of the log."""
    applied = NumpyRule(rule, initial.size)
    history = [initial.astype(np.float32)]
    for place, event in enumerate(log):
        update = gradient(event.worker, event.step, history[event.base])
        late = place - event.base
        those = {**numbers, "rate": numbers["rate"] / late} if divide_by_staleness and late > 1 else numbers
        table: Numbers = [(initial.size, those)]
        values = history[-1].copy()
        applied.apply(values, update, table, backup=history[event.base])
        history.append(values)
    return history

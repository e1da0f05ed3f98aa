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


@dataclass
class Elastic:
    """Workers of elastic averaging, after some exchanges: the centre, and the values of each worker."""

    centre: np.ndarray
    workers: list[np.ndarray]


def replay_elastic(
    order: Sequence[int],
    workers: int,
    initial: np.ndarray,
    gradient: Gradient,
    *,
    alpha: float,
    rate: float,
    every: int,
) -> Elastic:
    """Return what comes of asynchronous EASGD, by the formulas of Zhang et al. 2015.

    Args:
        order: the worker of each exchange, in the order in which the centre had them. Each takes `every` steps of
            plain SGD from one exchange to the next, and the last of them is the step of the exchange.
        workers: how many there are.
        initial: where all begin.
        gradient: of a worker, in one of its steps, at its values.
        alpha: the strength.
        rate: the learning rate.
        every: tau.
    """
    now = Elastic(initial.astype(np.float64), [initial.astype(np.float64) for _ in range(workers)])
    steps = [0] * workers
    for worker in order:
        for place in range(every):
            old = now.workers[worker]
            moved = old - rate * gradient(worker, steps[worker], old)
            if place == every - 1:
                elastic = alpha * (old - now.centre)
                now.centre = now.centre + elastic
                moved = moved - elastic
            now.workers[worker] = moved
            steps[worker] += 1
    return now


def replay_rounds(
    rounds: int, workers: int, initial: np.ndarray, gradient: Gradient, *, alpha: float, rate: float, every: int
) -> Elastic:
    """Return what comes of synchronous EASGD, where all meet in each round; arguments as replay_elastic()."""
    now = Elastic(initial.astype(np.float64), [initial.astype(np.float64) for _ in range(workers)])
    for step in range(rounds * every):
        before = now.workers
        now.workers = [own - rate * gradient(worker, step, own) for worker, own in enumerate(before)]
        if (step + 1) % every == 0:
            pulls = [alpha * (own - now.centre) for own in before]
            now.workers = [own - pull for own, pull in zip(now.workers, pulls, strict=True)]
            now.centre = now.centre + sum(pulls)
    return now


def replay_local_steps(
    order: Sequence[int],
    workers: int,
    initial: np.ndarray,
    gradient: Gradient,
    *,
    rate: float,
    every: int,
    outer_rate: float,
    outer_momentum: float,
    momentum_every: int,
) -> np.ndarray:
    """Return the centre of asynchronous local SGD with delayed Nesterov, by the formulas of Liu et al. 2024.

    Args:
        order: the worker of each push, in the order in which the server had them. Each takes `every` steps of
            plain SGD from the centre that its last push brought.
        workers: how many there are.
        initial: where all begin.
        gradient: of a worker, in one of its steps, at its values.
        rate: the learning rate of the workers.
        every: steps between two pushes.
        outer_rate: of the server.
        outer_momentum: of the server.
        momentum_every: how many pushes a step of the momentum has.
    """
    centre = initial.astype(np.float64)
    taken = [centre.copy() for _ in range(workers)]
    steps = [0] * workers
    momentum, gathered = np.zeros_like(centre), np.zeros_like(centre)
    for place, worker in enumerate(order):
        own = taken[worker].copy()
        for _ in range(every):
            own = own - rate * gradient(worker, steps[worker], own)
            steps[worker] += 1
        moved = taken[worker] - own
        gathered = gathered + moved
        ahead = moved / momentum_every
        if (place + 1) % momentum_every == 0:
            momentum = outer_momentum * momentum + gathered / momentum_every
            ahead = ahead + outer_momentum * momentum
            gathered = np.zeros_like(centre)
        centre = centre - outer_rate * ahead
        taken[worker] = centre.copy()
    return centre


def replay_gossip(
    logs: Sequence[Sequence[tuple[object, ...]]], initial: np.ndarray, gradient: Gradient, *, rate: float
) -> list[np.ndarray]:
    """Return the values of workers that average in pairs, from what each of them noted.

    A worker's values have versions: 1 at the beginning, and one more with each change. An event takes place when
    the values that it reads are there, and the changes before it have been made.

    Args:
        logs: by worker: ("step" or "look", step, version that the model had, version after it), and
            (mode, peer, version that was read, the peer's version after it, the own version after it).
        initial: where all begin.
        gradient: of a worker, in one of its steps, at its values.
        rate: of plain SGD.
    """
    history: list[dict[int, np.ndarray]] = [{} for _ in logs]
    changes: list[dict[int, Callable[[np.ndarray], np.ndarray | None]]] = [{} for _ in logs]

    def change(worker: int, version: int, how: Callable[[np.ndarray], np.ndarray | None]) -> None:
        assert version not in changes[worker], "two changes with one version"
        changes[worker][version] = how

    moved: dict[tuple[int, int], np.ndarray] = {}

    def meet(worker: int, event: tuple[int, ...], mode: object) -> None:
        peer, read, theirs, ours = event

        def at_peer(now: np.ndarray) -> np.ndarray | None:
            if read not in history[worker]:
                return None
            moved[worker, ours] = (history[worker][read] - now) / 2
            return now + moved[worker, ours]

        def at_home(now: np.ndarray) -> np.ndarray | None:
            return now - moved[worker, ours] if (worker, ours) in moved else None

        def pulled(now: np.ndarray) -> np.ndarray | None:
            return (now + history[peer][theirs]) / 2 if theirs in history[peer] else None

        if mode == "pull":
            change(worker, ours, pulled)
            return
        change(peer, theirs, at_peer)
        if mode == "symmetric":
            change(worker, ours, at_home)

    for worker, log in enumerate(logs):
        for kind, *event in log:
            if kind in ("step", "look"):
                step, base, version = event
                history[worker].setdefault(0, initial.astype(np.float64))

                def stepped(
                    now: np.ndarray, worker: int = worker, step: int = step, base: int = base, kind: object = kind
                ) -> np.ndarray | None:
                    if base not in history[worker]:
                        return None
                    if kind == "look":
                        return now
                    return now - rate * gradient(worker, step, history[worker][base])

                change(worker, version, stepped)
            else:
                meet(worker, tuple(event), kind)
    first = [min(changed) - 1 for changed in changes]
    for worker, version in enumerate(first):
        history[worker][version] = initial.astype(np.float64)
    newest = list(first)
    progress = True
    while progress:
        progress = False
        for worker, changed in enumerate(changes):
            how = changed.get(newest[worker] + 1)
            after = how(history[worker][newest[worker]]) if how else None
            if after is not None:
                newest[worker] += 1
                history[worker][newest[worker]] = after
                progress = True
    assert newest == [max(changed) for changed in changes], "the log does not say all that happened"
    return [history[worker][version] for worker, version in enumerate(newest)]


def replay_groups(
    order: Sequence[int],
    groups: Sequence[Sequence[int]],
    initial: np.ndarray,
    gradient: Gradient,
    *,
    rate: float,
    every: int,
    rounds: int,
    delay: int,
    keep: float,
    group_rate: float,
    group_momentum: float,
    outer_rate: float,
    outer_momentum: float,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the centre and each group's model of HALoS, with the mean of a group as its change.

    Args:
        order: the group of each push, in the order in which the server had them.
        groups: the workers of each group.
        initial: where all begin.
        gradient: of a worker, in one of its steps, at its values.
        rate: the learning rate of the workers, plain SGD.
        every: steps of a worker in a round.
        rounds: of a group from one push to the next.
        delay: so many rounds after a push the group takes the values that it brought.
        keep: which part of its distance from the centre a group keeps when it takes these values.
        group_rate: of a group's Nesterov momentum.
        group_momentum: of a group's Nesterov momentum.
        outer_rate: of the server's delayed Nesterov, whose momentum steps once in as many pushes as groups.
        outer_momentum: of the server.
    """
    centre = initial.astype(np.float64)
    models = [centre.copy() for _ in groups]
    bases = [centre.copy() for _ in groups]
    momenta = [np.zeros_like(centre) for _ in groups]
    waiting: list[np.ndarray | None] = [None for _ in groups]
    steps = [0] * len(groups)
    momentum, gathered = np.zeros_like(centre), np.zeros_like(centre)

    def take(group: int) -> None:
        values = waiting[group]
        assert values is not None
        since = models[group] - bases[group]
        bases[group] = keep * bases[group] + (1 - keep) * values
        models[group] = bases[group] + since
        waiting[group] = None

    for place, group in enumerate(order):
        for number in range(1, rounds + 1):
            moved = []
            for worker in groups[group]:
                own = models[group].copy()
                for step in range(steps[group], steps[group] + every):
                    own = own - rate * gradient(worker, step, own)
                moved.append(models[group] - own)
            steps[group] += every
            mean = np.mean(moved, axis=0)
            momenta[group] = group_momentum * momenta[group] + mean
            models[group] = models[group] - group_rate * (mean + group_momentum * momenta[group])
            if waiting[group] is not None and number == delay:
                take(group)
        part = (bases[group] - models[group]) / len(groups)
        bases[group] = models[group].copy()
        gathered = gathered + part
        if (place + 1) % len(groups) == 0:
            momentum = outer_momentum * momentum + gathered
            part = part + outer_momentum * momentum
            gathered = np.zeros_like(centre)
        centre = centre - outer_rate * part
        waiting[group] = centre.copy()
        if not delay:
            take(group)
    return centre, models

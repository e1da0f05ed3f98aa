# SPDX-License-Identifier: Apache-2.0
"""Rounds: all contestants in turn, again and again, so that a drift of the machine hits all of them alike.

Calls of rooted collectives begin on all ranks at times agreed on before: Hunold, Carpen-Amarie, "Reproducible MPI
benchmarking is still not as easy as you think", 2016. Behind a barrier they would measure whom it lets go first.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from braid._bench.intervals import LEAST_ROUNDS, is_uncertain, median_interval
from braid._bench.ranks.contestant_rank import Stamps
from braid._bench.ranks.team import Team, TeamError
from braid._bench.results import REFERENCE, Case, Measurement, Ratio
from braid._bench.workload import Workload

Times = npt.NDArray[np.float64]  # in us, one per call
OnTurn = Callable[[str, int, int], None]  # contestant, rounds done, rounds planned (0: as time allows)

MOST_ROUNDS = 400
MOST_CALLS = 1000
# Of one contestant's turn: long enough that its beginning does not count, short enough to have many.
_TURN_S = 0.05
_CALLS_PER_WARMUP = 5
# Calls of rooted collectives begin so far apart, and twice as long as they take; the first one after so long.
_GAP_NS = 50_000
_NOTICE_NS = 5_000_000
_ANSWER_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Budget:
    """How much is measured per size: a time for all contestants together, or a number of calls for each."""

    seconds: float = 1.0
    calls: int | None = None

    @property
    def rounds(self) -> int:
        """How many rounds the calls are spread over; 0 when time decides."""
        return 0 if self.calls is None else min(self.calls, 20)


class CaseRun:
    """One workload on all contestants.

    A contestant that cannot do it, or breaks, is left out with the reason; its team has failed, so in all later
    cases too.
    """

    def __init__(
        self, teams: Mapping[str, Team], work: Workload, ranks: int, budget: Budget, on_turn: OnTurn
    ) -> None:
        """Take the teams in the order in which they are shown."""
        self._teams, self._work, self._budget, self._on_turn = teams, work, budget, on_turn
        self._case = Case(work.bytes, work.count, work.kind.bus_factor(ranks))
        self._random = random.Random()
        self._done = 0
        self._calls = dict.fromkeys(teams, 2)
        self._wrong = dict.fromkeys(teams, 0)
        self._windows_ns = dict.fromkeys(teams, 20 * _GAP_NS)
        self._rounds: dict[str, list[Times]] = {name: [] for name in teams}

    def run(self) -> Case:
        """Measure."""
        self._each(self._prepare)
        self._each(self._calibrate)
        end, done, planned = time.monotonic() + self._budget.seconds, 0, self._budget.rounds
        while self._running() and (done < planned if planned else self._goes_on(done, end)):
            self._done = done
            self._each(self._round, shuffled=True)
            done += 1
        self._each(self._finish)
        for name in self._running():
            other, reference = self._rounds[name], self._rounds.get(REFERENCE)
            if name != REFERENCE and reference and REFERENCE in self._running():
                self._case.ratios[name] = Ratio.of(_medians(other), _medians(reference))
        self._case.noise = _noise(self._case)
        return self._case

    def _goes_on(self, done: int, end: float) -> bool:
        return done < LEAST_ROUNDS or (done < MOST_ROUNDS and time.monotonic() < end)

    def _running(self) -> list[str]:
        return [name for name in self._teams if name not in self._case.refused]

    def _each(self, action: Callable[[str], None], shuffled: bool = False) -> None:
        names = self._running()
        if shuffled:
            self._random.shuffle(names)
        for name in names:
            try:
                action(name)
            except TeamError as error:
                self._case.refused[name] = str(error)
                self._case.measurements.pop(name, None)

    # ---- of one contestant

    def _prepare(self, name: str) -> None:
        self._on_turn(name, 0, self._budget.rounds)
        self._ask(name, "prepare", self._work)
        self._check(name)

    def _check(self, name: str) -> None:
        self._wrong[name] += sum(self._ask(name, "check", self._random.randrange(2**31)))

    def _calibrate(self, name: str) -> None:
        if self._budget.calls is not None:
            self._calls[name] = -(-self._budget.calls // self._budget.rounds)
        elif self._work.cold:
            self._calls[name] = 1
        else:
            share_s = self._budget.seconds / len(self._running()) / LEAST_ROUNDS
            self._turn(name)
            call_us = max(0.1, float(np.median(self._turn(name))))
            self._calls[name] = max(1, min(MOST_CALLS, int(1e6 * min(_TURN_S, share_s) / call_us)))

    def _round(self, name: str) -> None:
        self._rounds[name].append(self._turn(name))

    def _turn(self, name: str) -> Times:
        self._on_turn(name, self._done, self._budget.rounds)
        calls, warmups = self._calls[name], -(-self._calls[name] // _CALLS_PER_WARMUP)
        if not self._work.kind.rooted or self._work.cold:
            times = call_times(self._ask(name, "block", calls, warmups))
            return times * (0.5 if self._work.collective == "ping_pong" else 1.0)
        self._ask(name, "warm_up", warmups)
        begin_ns = time.perf_counter_ns() + _NOTICE_NS
        times = call_times(apart(self._ask(name, "calls_at", calls, begin_ns, self._windows_ns[name])))
        self._windows_ns[name] = _GAP_NS + int(2e3 * np.median(times))
        return times

    def _finish(self, name: str) -> None:
        self._check(name)
        described = self._ask(name, "describe")[0]
        self._ask(name, "release")
        times = np.concatenate(self._rounds[name])
        self._case.measurements[name] = Measurement(
            p50_us=float(np.percentile(times, 50)),
            p95_us=float(np.percentile(times, 95)),
            min_us=float(times.min()),
            mean_us=float(times.mean()),
            calls=len(times),
            rounds_us=_medians(self._rounds[name]),
            wrong=self._wrong[name],
            **described,
        )

    def _ask(self, name: str, method: str, *arguments: Any) -> list[Any]:
        return self._teams[name].ask(method, *arguments, timeout_s=_ANSWER_TIMEOUT_S)


def call_times(stamps: list[tuple[Stamps, Stamps]]) -> Times:
    """Return the time of each call in us: from the last rank's entry to the last rank's return.

    So a rank that came late is not charged to the contestant, and the times of calls in a row add up to the time
    of all.

    Args:
        stamps: per rank, when each call began and ended, in ns on one clock; empty for ranks without a part.
    """
    starts, ends = zip(*(pair for pair in stamps if len(pair[0])), strict=True)
    spans: Times = (np.max(ends, axis=0) - np.max(starts, axis=0)) / 1e3
    return spans


def apart(stamps: list[tuple[Stamps, Stamps]]) -> list[tuple[Stamps, Stamps]]:
    """Return the stamps of those calls that no rank began before all had ended the last one; the first is one."""
    starts, ends = (np.array(both) for both in zip(*stamps, strict=True))
    alone = np.ones(starts.shape[1], bool)
    alone[1:] = starts.min(axis=0)[1:] >= ends.max(axis=0)[:-1]
    return [(begun[alone], ended[alone]) for begun, ended in stamps]


def _medians(rounds: list[Times]) -> list[float]:
    return [float(np.median(times)) for times in rounds]


def _noise(case: Case) -> str:
    """Return what is too uncertain to be relied on."""
    unsure = []
    for name, measurement in case.measurements.items():
        if is_uncertain(measurement.rounds_us):
            low, high = median_interval(measurement.rounds_us)
            unsure.append(f"{name} {low:.4g} to {high:.4g} us")
    return "" if not unsure else f"uncertain medians: {', '.join(unsure)}"

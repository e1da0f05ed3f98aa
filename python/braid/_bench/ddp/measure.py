# SPDX-License-Identifier: Apache-2.0
"""Measures steps of DistributedDataParallel on all contestants in turn, whole and in parts."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from braid._bench.ddp.results import DdpMeasurement, DdpRatios, DdpReport, DdpSettings, Estimate
from braid._bench.intervals import LEAST_ROUNDS, is_uncertain
from braid._bench.results import REFERENCE, Ratio

RANK_CLASS = "braid._bench.ddp.rank:DdpRank"
KINDS = ("full", "compute", "communication", "bare")
MOST_ROUNDS = 1000

_ANSWER_TIMEOUT_S = 600.0

# Contestant, rounds done, rounds planned at most.
OnTurn = Callable[[str, int, int], None]


class Team(Protocol):
    """The ranks of a contestant, each with a DdpRank."""

    def ask(self, method: str, *arguments: Any, timeout_s: float = ...) -> list[Any]:
        """Have every rank call a method at once; return the answers by rank."""


def measure(
    teams: Mapping[str, Team],
    settings: DdpSettings,
    *,
    rounds: int = MOST_ROUNDS,
    seconds: float | None = None,
    on_turn: OnTurn = lambda contestant, done, planned: None,
    team_error: type[Exception] = RuntimeError,
) -> DdpReport:
    """Measure rounds of one step of each kind, contestants in turn, and return what was found.

    Args:
        teams: by contestant, in the order in which they are shown; their ranks made with settings.of_rank().
        settings: for the report.
        rounds: how many at most.
        seconds: then no further round is begun, once there were LEAST_ROUNDS; None for as long as it takes.
        on_turn: called before a contestant's part of a round.
        team_error: what a team raises that cannot go on; it is skipped then, and the others are not.
    """
    return _Run(teams, settings, on_turn, team_error).run(rounds, seconds)


class _Run:
    def __init__(
        self, teams: Mapping[str, Team], settings: DdpSettings, on_turn: OnTurn, team_error: type[Exception]
    ) -> None:
        self._teams, self._on_turn, self._team_error = teams, on_turn, team_error
        self._report = DdpReport(settings, list(teams))
        self._wrong = dict.fromkeys(teams, 0)
        self._rounds_ms: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in KINDS} for name in teams}

    def run(self, rounds: int, seconds: float | None) -> DdpReport:
        self._each(self._running(), self._prepare)
        deadline = None if seconds is None else time.monotonic() + seconds
        for done in range(rounds):
            if deadline is not None and done >= LEAST_ROUNDS and time.monotonic() > deadline:
                break
            names = self._running()
            # Every other round the other way round, so that nobody always follows the same one.
            for name in names[:: -1 if done % 2 else 1]:
                self._on_turn(name, done, rounds)
                self._each([name], self._round)
        self._each(self._running(), self._check)
        for name in self._running():
            self._report.measurements[name] = measurement(self._rounds_ms[name], self._wrong[name])
        for name in self._running():
            if name != REFERENCE and REFERENCE in self._running():
                found = self._report.measurements
                self._report.ratios[name] = ratios(found[name], found[REFERENCE])
        self._report.notes += _notes(self._report)
        return self._report

    def _running(self) -> list[str]:
        return [name for name in self._teams if name not in self._report.skipped]

    def _each(self, names: Sequence[str], action: Callable[[str], None]) -> None:
        for name in names:
            try:
                action(name)
            except self._team_error as error:
                self._report.skipped[name] = str(error)

    def _prepare(self, name: str) -> None:
        self._on_turn(name, 0, 0)
        self._check(name)
        for kind in KINDS:
            self._step_ms(name, kind)
        self._report.facts = self._report.facts or self._ask(name, "facts")[0]

    def _check(self, name: str) -> None:
        self._wrong[name] += sum(self._ask(name, "check"))

    def _round(self, name: str) -> None:
        for kind in KINDS:
            self._rounds_ms[name][kind].append(self._step_ms(name, kind))

    def _step_ms(self, name: str, kind: str) -> float:
        seconds: list[float] = self._ask(name, "step", kind)
        return 1e3 * max(seconds)

    def _ask(self, name: str, method: str, *arguments: Any) -> list[Any]:
        return self._teams[name].ask(method, *arguments, timeout_s=_ANSWER_TIMEOUT_S)


def measurement(rounds_ms: dict[str, list[float]], wrong: int) -> DdpMeasurement:
    """Return what rounds of steps mean.

    Args:
        rounds_ms: the steps of each of KINDS, as many of one as of the other, and at least one.
        wrong: elements that were not what they should be.
    """
    exposed, communication = _exposed(rounds_ms), _communication(rounds_ms)
    shares = [1 - ours / all_ for ours, all_ in zip(exposed, communication, strict=True) if all_ > 0]
    return DdpMeasurement(
        step_ms=Estimate.of(rounds_ms["full"]),
        compute_ms=Estimate.of(rounds_ms["compute"]),
        exposed_ms=Estimate.of(exposed),
        communication_ms=Estimate.of(communication),
        hidden=Estimate.of(shares) if shares else None,
        rounds_ms=rounds_ms,
        wrong=wrong,
    )


def ratios(other: DdpMeasurement, reference: DdpMeasurement) -> DdpRatios:
    """Return how much longer a contestant takes than the reference, measured in the same rounds."""
    pairs = [
        _ratio(part(other.rounds_ms), part(reference.rounds_ms), known)
        for part, known in ((_exposed, reference.exposed_ms), (_communication, reference.communication_ms))
    ]
    return DdpRatios(*pairs)


def _exposed(rounds_ms: dict[str, list[float]]) -> list[float]:
    return _difference(rounds_ms["full"], rounds_ms["compute"])


def _communication(rounds_ms: dict[str, list[float]]) -> list[float]:
    return _difference(rounds_ms["communication"], rounds_ms["bare"])


def _difference(left: list[float], right: list[float]) -> list[float]:
    return [a - b for a, b in zip(left, right, strict=True)]


def _ratio(other: list[float], reference: list[float], known: Estimate) -> Ratio | None:
    if known.low <= 0:
        return None  # there is no ratio to what may be nothing
    # Rounds left out are those in which the reference looked best, so this does not flatter it.
    return Ratio.of(*zip(*((a, b) for a, b in zip(other, reference, strict=True) if b > 0), strict=True))


def _notes(report: DdpReport) -> list[str]:
    notes = []
    for name, found in report.measurements.items():
        step, given_ms = found.step_ms, report.settings.compute_ms
        if is_uncertain(found.rounds_ms["full"]):
            notes.append(f"uncertain: a step of {name} takes {step.low:.4g} to {step.high:.4g} ms")
        if given_ms and found.compute_ms.median > 1.1 * given_ms:
            notes.append(
                f"{name} computes for {found.compute_ms.median:.4g} ms: torch needs longer than was given"
            )
    return notes

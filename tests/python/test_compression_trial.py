# SPDX-License-Identifier: Apache-2.0
"""Whether what auto chose pays is tried out."""

from collections.abc import Callable

import pytest
from braid.compression import trial as module
from braid.compression.trial import Trial

EXACT_S = 1.0


class Training:
    """Steps on a clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, trial: Trial, with_codecs_s: float) -> None:
        self.now = 100.0
        self.trial = trial
        self.step_s = {True: with_codecs_s, False: EXACT_S}
        self.used: list[bool] = []
        self.asked: list[int] = []
        monkeypatch.setattr(module.time, "perf_counter", lambda: self.now)

    def run(self, steps: int, gain_s: float | None = 0.2, warm_up: bool = False) -> None:
        """Make steps; one in eleven takes thrice as long, as on a noisy machine."""
        for number in range(steps):
            self.trial.begin_step(warm_up, lambda: gain_s, self.agree)
            self.used.append(self.trial.uses_codecs and not warm_up)
            self.now += self.step_s[self.used[-1]] * (3 if number % 11 == 7 else 1)

    def agree(self, choice: int) -> int:
        self.asked.append(choice)
        return choice


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Training]:
    return lambda with_codecs_s, **options: Training(monkeypatch, Trial(24, **options), with_codecs_s)


@pytest.mark.parametrize(("with_codecs_s", "kept"), [(0.5, True), (0.9, True), (0.99, False), (1.2, False)])
def test_keeps_what_is_faster(training: Callable[..., Training], with_codecs_s: float, kept: bool) -> None:
    made = training(with_codecs_s)
    made.run(10, warm_up=True)
    made.run(60)
    tried = made.used[10:35]
    assert tried == [True, *([True] * 4 + [False] * 4) * 3]
    assert made.used[35:] == [kept] * 35
    assert made.trial.verdict is kept
    assert made.asked == [False, kept]
    assert made.trial.finding is kept
    if not kept:
        assert made.trial.reason == f"steps took {with_codecs_s * 1e3:.3g} ms with a codec, 1e+03 without"


def test_needs_no_proof_of_large_gains(training: Callable[..., Training]) -> None:
    made = training(1.2)
    made.run(10, warm_up=True)
    made.run(5, gain_s=0.6)
    assert made.trial.finding is True
    assert made.asked == [True]
    # But nobody knows how large a gain is after too short a warm-up.
    made = training(1.2)
    made.run(3, warm_up=True)
    made.run(40, gain_s=0.6)
    assert made.trial.verdict is False


def test_is_over_where_no_codec_was_chosen(training: Callable[..., Training]) -> None:
    made = training(1.2)
    made.run(5, gain_s=None)
    assert made.trial.verdict is True
    assert made.trial.finding is None  # nothing to remember
    assert made.asked == []


def test_follows_the_first_rank(training: Callable[..., Training]) -> None:
    made = training(0.5)
    made.agree = lambda choice: 0  # the first rank always says no
    made.run(40)
    assert made.trial.verdict is False


def test_takes_over_verdicts(training: Callable[..., Training]) -> None:
    for verdict in (True, False):
        made = training(1.2, verdict=verdict)
        made.run(3)
        assert made.used == [verdict] * 3
        assert made.asked == []
        made.trial.settle(lambda mine: mine)
        assert made.trial.verdict is verdict
    fresh = Trial(24)
    fresh.settle(lambda mine: mine)
    assert fresh.verdict is None
    fresh.settle(lambda mine: 2)  # another rank has given it up
    assert fresh.verdict is False
    never = Trial(0, False)
    assert (never.verdict, never.finding) == (True, None)
    never.settle(lambda mine: 2)
    assert never.verdict is True

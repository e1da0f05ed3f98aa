# SPDX-License-Identifier: Apache-2.0
"""The best split of a vector among owners with unequal cards, against a solver of linear programmes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from braid import _core
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

pytestmark = pytest.mark.unit

TOLERANCE = 1e-9
RATES = st.floats(0.01, 1.0)
RATIOS = st.sampled_from([1.0, 0.5, 0.25, 0.03])


@dataclass(frozen=True)
class Problem:
    """Contributing owners and others, whose cards have these rates up and down."""

    contributors: list[tuple[float, float]]
    others: list[tuple[float, float]]
    push: float = 1.0
    pull: float = 1.0

    def solve(self) -> tuple[float, np.ndarray]:
        up, down = zip(*self.contributors, *self.others, strict=True)
        contributes = [True] * len(self.contributors) + [False] * len(self.others)
        seconds, shares = _core.optimal_split(up, down, contributes, push=self.push, pull=self.pull)
        return seconds, np.array(shares)

    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What a card carries is fixed + slope * share of its owner: fixed, slopes and rates, up and then down."""
        n, k = len(self.contributors), len(self.others)
        push, pull = self.push, self.pull
        up_fixed, up_slope = [push] * n + [0.0] * k, [(n - 1) * pull - push] * n + [n * pull] * k
        down_fixed, down_slope = [pull] * n + [0.0] * k, [(n - 1) * push - pull] * n + [n * push] * k
        rates = np.array(self.contributors + self.others)
        return np.array(up_fixed + down_fixed), np.array(up_slope + down_slope), rates.T.reshape(-1)

    def least_time(self) -> float:
        """As the solver finds it: the least T with fixed + slope x <= T rate and shares of sum 1."""
        fixed, slope, rate = self.rows()
        owners = len(fixed) // 2
        table = np.zeros((2 * owners, owners + 1))
        table[np.arange(2 * owners), np.arange(2 * owners) % owners] = slope / rate
        table[:, -1] = -1
        solution = linprog(
            np.eye(owners + 1)[-1],
            A_ub=table,
            b_ub=-fixed / rate,
            A_eq=np.array([[1.0] * owners + [0.0]]),
            b_eq=[1.0],
            bounds=[(0, 1)] * owners + [(0, None)],
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        assert solution.status == 0, solution.message
        return float(solution.fun)


def problems() -> st.SearchStrategy[Problem]:
    cards = st.tuples(RATES, RATES)
    return st.builds(
        Problem,
        st.lists(cards, min_size=2, max_size=11),
        st.lists(cards, max_size=7),
        push=RATIOS,
        pull=RATIOS,
    )


@given(problems())
@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@example(Problem([(1.0, 1.0)] * 3 + [(0.8, 0.8)], [(1.0, 1.0)]))
@example(Problem([(1.0, 1.0)] * 3 + [(0.25, 0.25)], [(1.0, 1.0)]))
def test_the_split_is_the_optimum_of_the_linear_programme(problem: Problem) -> None:
    seconds, shares = problem.solve()
    assert seconds == pytest.approx(problem.least_time(), rel=TOLERANCE)
    fixed, slope, rate = problem.rows()
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1, rel=TOLERANCE)
    assert np.all(fixed + slope * np.tile(shares, 2) <= seconds * rate * (1 + TOLERANCE))


@given(problems())
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_faster_cards_need_as_much_less_time(problem: Problem) -> None:
    seconds, shares = problem.solve()
    faster = [
        [(up * 2.0**30, down * 2.0**30) for up, down in cards] for cards in (problem.contributors, problem.others)
    ]
    quick, same = Problem(faster[0], faster[1], problem.push, problem.pull).solve()
    assert quick == seconds / 2**30
    assert list(same) == list(shares)


UNIT = 2.0**-20  # of a weight


def topology(problem: Problem) -> str:
    """Everybody on a host of its own, others after the contributors; rates in bytes per second."""
    cards = problem.contributors + problem.others
    lines = [
        "topology hosts=" + ",".join(str(host) for host in range(len(cards))),
        "within alpha_s=0 beta_s_per_byte=0",
        "between alpha_s=0 beta_s_per_byte=1",
        *(
            f"card {host} up_s_per_byte={1 / up!r} down_s_per_byte={1 / down!r}"
            for host, (up, down) in enumerate(cards)
        ),
    ]
    return "\n".join(lines)


@given(problems().map(lambda problem: Problem(problem.contributors, problem.others)))
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@example(Problem([(1.0, 1.0)] * 3 + [(0.8, 0.8)], [(1.0, 1.0)]))
@example(Problem([(1.0, 1.0)] * 2, [(1.0, 1.0)]))
@example(Problem([(1.0, 1.0)] * 4, [(0.011, 0.011)]))
def test_the_weights_of_a_topology_take_the_least_time(problem: Problem) -> None:
    best = problem.least_time()
    fixed, slope, rate = problem.rows()
    owners = len(rate) // 2
    for of_hosts in (False, True):  # alike, where every rank has a host of its own
        weights = _core.shares_on(topology(problem), len(problem.others), of_hosts)
        shares = np.array(weights or [1] * owners) / (sum(weights) or owners)
        assert len(shares) == owners
        seconds = np.max((fixed + slope * np.tile(shares, 2)) / rate)
        rounding = owners * UNIT * np.max(np.abs(slope) / rate)
        assert seconds <= best * (1 + 1e-6 if weights else 1.01) + rounding
        assert seconds >= best * (1 - 1e-6)


def test_weights_of_what_makes_no_sense_are_refused() -> None:
    text = topology(Problem([(1.0, 1.0)] * 2, []))
    with pytest.raises(ValueError, match="2 aggregators among 2 nodes"):
        _core.shares_on(text, 2)
    with pytest.raises(ValueError, match="-1 aggregators"):
        _core.shares_on(text, -1)
    with pytest.raises(ValueError, match="line 1"):
        _core.shares_on("no topology")


def test_what_is_no_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="same number of owners"):
        _core.optimal_split([1.0], [1.0, 2.0], [True])
    with pytest.raises(ValueError, match="a rate up is 0"):
        _core.optimal_split([0.0], [1.0], [True])
    with pytest.raises(ValueError, match="nobody contributes"):
        _core.optimal_split([1.0], [1.0], [False])
    with pytest.raises(ValueError, match="push ratio"):
        _core.optimal_split([1.0], [1.0], [True], push=-1.0)

# SPDX-License-Identifier: Apache-2.0
"""The interval of a median: known values, every small count, and how often it holds what it should."""

import random
from math import comb

import pytest
from braid._bench.intervals import LEAST_ROUNDS, is_uncertain, median_interval

pytestmark = pytest.mark.unit


def coverage(count: int, cut: int) -> float:
    """The chance that the order statistics `cut` places from either end enclose the median."""
    return sum(comb(count, below) for below in range(cut + 1, count - cut)) / 2**count


@pytest.mark.parametrize("count", range(1, 60))
def test_median_interval_is_the_narrowest_that_suffices(count: int) -> None:
    cuts = [cut for cut in range((count + 1) // 2) if coverage(count, cut) >= 0.95]
    cut = max(cuts, default=0)
    values = random.Random(count).sample(range(count), count)
    assert median_interval(values) == (cut, count - 1 - cut)


def test_median_interval_of_known_counts() -> None:
    assert median_interval(range(1, 7)) == (1, 6)
    assert median_interval(range(1, 21)) == (6, 15)
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert median_interval([7]) == (7, 7)
    with pytest.raises(ValueError, match="nothing"):
        median_interval([])


def test_median_interval_covers_the_median_of_a_skewed_distribution() -> None:
    draw = random.Random(20)
    hits = 0
    for _ in range(2000):
        low, high = median_interval([draw.lognormvariate(0, 1.5) for _ in range(20)])
        hits += low <= 1 <= high  # exp(0)
    # 95.9 % are expected, with a deviation of 0.45 %.
    assert 0.945 < hits / 2000 < 0.973


def test_the_least_rounds_leave_out_the_extremes() -> None:
    assert median_interval(list(range(LEAST_ROUNDS))) == (1, LEAST_ROUNDS - 2)
    assert median_interval(list(range(LEAST_ROUNDS - 1))) == (0, LEAST_ROUNDS - 2)


def test_uncertain_is_what_spreads() -> None:
    assert not is_uncertain([100, 101, 102, 103, 104, 105, 106, 107, 900])
    assert is_uncertain([100, 101, 102, 103, 104, 125, 126, 127, 128])

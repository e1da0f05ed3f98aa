# SPDX-License-Identifier: Apache-2.0
"""A list of tensors that is known at once: one vector of them all has the best plan that there is for the list."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from braid import _core
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

pytestmark = pytest.mark.unit

RATES = st.floats(0.05, 1.0)
CARDS = st.lists(st.tuples(RATES, RATES), min_size=2, max_size=6)
SIZES = st.lists(st.integers(1, 10_000), min_size=1, max_size=8)


def loads(owned: np.ndarray, total: float) -> np.ndarray:
    """Return what cards carry, up and then down, when owners own so many bytes of the list: that alone counts."""
    ranks = len(owned)
    one_way = total - owned + (ranks - 1) * owned  # contributions to others, and sums of its own to each
    return np.concatenate([one_way, one_way])


def joint_least_time(cards: list[tuple[float, float]], sizes: list[int]) -> float:
    """As a solver finds it: every tensor is divided in its own way, and T is least for all of them together."""
    ranks, tensors = len(cards), len(sizes)
    parts = np.repeat(np.array(sizes, float), ranks)  # of tensor t and owner j, at t * ranks + j
    owner = np.tile(np.arange(ranks), tensors)
    table = np.zeros((2 * ranks, tensors * ranks + 1))
    for row, rate in enumerate(rate for way in zip(*cards, strict=True) for rate in way):
        table[row, :-1] = np.where(owner == row % ranks, (ranks - 2) * parts, 0) / rate
    table[:, -1] = -1
    fixed = np.array([sum(sizes) / rate for way in zip(*cards, strict=True) for rate in way])
    whole = np.zeros((tensors, tensors * ranks + 1))
    for tensor in range(tensors):
        whole[tensor, tensor * ranks : (tensor + 1) * ranks] = 1
    solution = linprog(
        np.eye(tensors * ranks + 1)[-1],
        A_ub=table,
        b_ub=-fixed,
        A_eq=whole,
        b_eq=np.ones(tensors),
        bounds=[(0, 1)] * (tensors * ranks) + [(0, None)],
        method="highs-ds",
    )
    assert solution.status == 0, solution.message
    return float(solution.fun)


@given(CARDS, SIZES)
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_one_vector_has_the_joint_optimum(cards: list[tuple[float, float]], sizes: list[int]) -> None:
    up, down = zip(*cards, strict=True)
    total = sum(sizes)
    seconds_per_byte, shares = _core.optimal_split(up, down, [True] * len(cards))
    best = joint_least_time(cards, sizes)
    assert total * seconds_per_byte == pytest.approx(best, rel=1e-7)

    # The vector of all tensors, cut into one chunk per owner, gives every owner just that.
    ends = np.concatenate([[0.0], np.cumsum(shares)]) * total
    starts = np.concatenate([[0], np.cumsum(sizes)])
    owned, shared = np.zeros(len(cards)), 0
    for begin, end in pairwise(starts):
        inside = [max(0.0, min(end, b) - max(begin, a)) for a, b in pairwise(ends)]
        owned += inside
        shared += sum(part > 1e-6 * total for part in inside) > 1
    assert owned == pytest.approx(np.array(shares) * total, abs=1e-6 * total)
    assert np.max(loads(owned, total) / np.array([*up, *down])) <= best * (1 + 1e-6)
    # And all tensors but one per cut have one owner, without anybody's choosing.
    assert shared <= len(cards) - 1


CLUSTERS = {
    "four equal": [1.0, 1.0, 1.0, 1.0],
    "one at 0.8": [1.0, 1.0, 1.0, 0.8],
    "one at 0.25": [1.0, 1.0, 1.0, 0.25],
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_model_prefers_one_vector_to_a_list(name: str) -> None:
    cards = [(1 / (1.2e7 * part),) * 2 for part in CLUSTERS[name]]
    tuner = _core.Tuner(_core.stated_topology(list(range(len(cards))), 1e-4, 1 / 1.2e7, cards))

    def seconds(size: int) -> float:
        return float(tuner.explain("all_reduce", "float32", "sum", 0, size)["predicted_s"])

    small, large = [1 << 10] * 100, [1 << 22] * 4
    assert seconds(sum(small)) < 0.5 * sum(map(seconds, small))
    # Tensors that fill the wire by themselves have hardly anything to gain, nor to lose.
    assert 0.9 * sum(map(seconds, large)) < seconds(sum(large)) <= 1.01 * sum(map(seconds, large))

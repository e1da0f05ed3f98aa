# SPDX-License-Identifier: Apache-2.0
"""Shares of a batch, the ends of batches, and speeds: numbers only."""

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from braid.data import shares as sharing
from braid.data.batches import batch_ends
from braid.data.speeds import UNIT, Speed
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.unit

speeds = st.lists(st.integers(1, 10_000), min_size=1, max_size=8)


@settings(max_examples=200, deadline=None)
@given(speeds, st.integers(0, 200), st.integers(0, 5))
def test_shares(speeds: list[int], more: int, room: int) -> None:
    total = len(speeds) + more
    shares = sharing.proportional(total, speeds)
    assert sum(shares) == total
    assert min(shares) >= 1
    exact = [Fraction(total * speed, sum(speeds)) for speed in speeds]
    if min(exact) >= 1:
        assert all(abs(share - part) < 1 for share, part in zip(shares, exact, strict=True))
    slow_first = sorted(zip(speeds, shares, strict=True))
    assert all(one[1] <= other[1] + (one[0] == other[0]) for one, other in pairwise(slow_first))
    most = math.ceil(total / len(speeds)) + room
    bounded = sharing.proportional(total, speeds, most)
    assert sum(bounded) == total
    assert 1 <= min(bounded) <= max(bounded) <= most
    places = [sharing.part_of(7, shares, worker) for worker in range(len(speeds))]
    assert [len(part) for part in places] == shares
    assert sorted(place for part in places for place in part) == list(range(7, 7 + total))


def test_known_shares() -> None:
    assert sharing.proportional(128, [3, 3, 1, 1]) == [48, 48, 16, 16]
    assert sharing.proportional(10, [1000, 1, 1]) == [8, 1, 1]
    assert sharing.proportional(12, [100, 100, 1], 5) == [5, 5, 2]
    assert sharing.proportional(7, [5, 5]) == sharing.equal(7, 2) == [4, 3]
    assert sharing.part_of(10, [2, 2], 1) == [11, 13]  # as DistributedSampler has it
    assert sharing.part_of(0, [1, 3], 1) == [1, 2, 3]


def test_only_gains_change_shares() -> None:
    assert sharing.revised([10, 10], [100, 0]) == [10, 10]  # not known yet
    assert sharing.revised([10, 10], [100, 96]) == [10, 10]
    assert sharing.revised([10, 10], [300, 100]) == [15, 5]
    assert sharing.revised([15, 5], [290, 100]) == [15, 5]
    assert sharing.revised([15, 5], [100, 100]) == [10, 10]


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 9), st.integers(1, 6), st.integers(0, 100), st.integers(0, 30))
def test_ends(batch: int, workers: int, more: int, start: int) -> None:
    size, samples = batch * workers, workers + more
    ends = batch_ends(start, start + samples, size, workers)
    sizes = [end - begin for begin, end in pairwise([start, *ends])]
    assert sum(sizes) == samples
    assert workers <= min(sizes) <= max(sizes) <= size
    assert len(sizes) == math.ceil(samples / size)  # as many as with DistributedSampler
    assert all(each == size for each in sizes[:-2])
    assert batch_ends(start, start, size, workers) == []


def test_speed() -> None:
    speed = Speed()
    assert speed.as_integer() == 0
    for samples, seconds in ((8, 2.0), (8, 2.0), (8, 100.0)):  # the last one is a checkpoint
        speed.begin(samples)
        speed.add(seconds)
    speed.begin(8)  # without a time: an evaluation
    speed.end()
    assert speed.as_integer() == 4 * UNIT
    speed.begin(8)
    speed.add(1.0)
    speed.end()
    assert speed.as_integer() == 6 * UNIT
    assert speed.as_integer() == 6 * UNIT

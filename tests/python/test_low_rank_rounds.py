# SPDX-License-Identifier: Apache-2.0
"""What is predicted of the two operations of low rank, for buckets that share them and for one that does not."""

from dataclasses import replace

import pytest
from braid.compression.layout import Part, Piece
from braid.compression.prediction import time_s
from braid.compression.rounds import is_long

pytestmark = pytest.mark.unit


def part(rows: int, columns: int, codec: str = "power_sgd:4") -> Part:
    return Part(codec, (Piece("w", 0, (rows, columns), rows * columns),), in_place=True)


def operations(*parts: Part) -> tuple[list[int], int]:
    """Return the elements of exact operations, and those of matrices that are computed with."""
    sent: list[int] = []
    computed: list[int] = []
    time_s(parts, lambda elements, codec: float((computed if codec else sent).append(elements) or 0))
    return sent, sum(computed)


def test_short_factors_share_two_operations() -> None:
    short, other, long = part(100, 80), part(60, 50), part(4000, 50)
    assert not is_long(4 * (100 + 60))
    assert is_long(4 * 4000)
    assert operations(short) == ([400, 320], 8000)
    assert operations(short, other) == ([640, 520], 11000)
    assert operations(short, long, other) == ([16400, 520, 240, 200], 211_000)
    assert operations(long, short) == ([16000, 200, 400, 320], 208_000)
    # What is exact goes by itself, or rides with the first factors.
    rider = Part("exact", (Piece("b", 8000, (9,), 9),), in_place=True)
    assert operations(short, rider, other) == ([9, 640, 520], 11000)
    assert operations(replace(short, rider=rider), other) == ([649, 520], 11000)

# SPDX-License-Identifier: Apache-2.0
"""Predicted times of PowerSGD rounds: buckets that share the two operations, and buckets that do not."""

from dataclasses import replace

import pytest
import torch
from braid.compression.layout import Part, Piece
from braid.compression.power_sgd_rounds import is_long
from braid.compression.prediction import time_s

pytestmark = pytest.mark.unit


def part(rows: int, columns: int, in_place: bool = True, dtype: torch.dtype = torch.float32) -> Part:
    return Part("power_sgd:4", (Piece("w", 0, (rows, columns), rows * columns, dtype),), in_place)


def operations(*buckets: list[Part]) -> tuple[list[int], int]:
    """Return the elements of each operation, and the elements of all matrices together. Nothing is copied."""
    sent: list[int] = []
    computed: list[int] = []

    def predict(elements: int, codec: str | None) -> float:
        (computed if codec else sent).append(elements)
        return 1.0

    seconds = time_s((bucket, predict) for bucket in buckets)
    assert seconds == len(sent) + len(computed)
    return sent, sum(computed)


def test_short_factors_share_two_operations() -> None:
    short, other, long = part(100, 80), part(60, 50, in_place=False), part(4000, 50)
    assert not is_long(4 * (100 + 60))
    assert is_long(4 * 4000)
    assert operations([short]) == ([400, 320], 8000)
    both = ([640, 520], 11000)
    assert operations([short], [other]) == operations([short, other]) == both
    assert operations([short], [long], [other]) == ([16400, 520, 240, 200], 211_000)
    assert operations([long], [short]) == ([16000, 200, 400, 320], 208_000)
    assert operations() == ([], 0)


def test_what_is_exact_goes_by_itself_or_rides() -> None:
    short, other = part(100, 80), part(60, 50)
    alone = Part("exact", (Piece("b", 8000, (9,), 9),), in_place=True)
    assert operations([short, alone], [other]) == ([9, 640, 520], 11000)
    assert operations([replace(short, rider=alone)], [other]) == ([649, 520], 11000)
    # Short factors do not wait behind a bucket without matrices.
    assert operations([short], [alone], [other]) == ([400, 320, 9, 240, 200], 11000)
    assert operations([short], [], [other]) == ([400, 320, 240, 200], 11000)


def test_factors_of_16_bits_are_counted_as_floats() -> None:
    assert operations([part(100, 80, dtype=torch.bfloat16)]) == ([800, 640], 8000)

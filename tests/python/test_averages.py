# SPDX-License-Identifier: Apache-2.0
"""What a worker's moving averages become when those of others arrive."""

import pytest
import torch
from braid.strategies.averages import merged

pytestmark = pytest.mark.unit


def one(now: float, sent: float, average: float) -> float:
    return float(merged(torch.tensor([now]), torch.tensor([sent]), torch.tensor([average])).item())


def test_own_changes_stay() -> None:
    assert one(1.5, 1.0, 1.25) == 1.5  # 1.75 would be outside
    assert one(1.25, 1.0, 0.5) == 0.75
    assert one(0.5, 1.0, 1.0) == 0.5  # others have changed nothing


def test_without_own_changes_it_is_the_others() -> None:
    assert one(1.0, 1.0, 7.0) == 7.0
    infinity = float("inf")
    assert one(-infinity, -infinity, -infinity) == -infinity


def test_nothing_leaves_the_range() -> None:
    now, sent, average = torch.rand(3, 10_000) * torch.tensor([1e-3, 1.0, 100.0])[:, None]
    three = torch.stack((now, sent, average))
    found = merged(now, sent, average)
    assert (found >= three.amin(0)).all()
    assert (found <= three.amax(0)).all()
    assert (average + (now - sent) < 0).any()  # what it was before

# SPDX-License-Identifier: Apache-2.0
"""Worker 0's state at the beginning: who gets it, what travels, and what a late worker finds."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from braid._errors import CommunicatorTimeoutError
from braid.strategies import first_values
from braid.strategies.first_values import take_first_values
from braid.strategies.packing import Entry
from braid.strategies.store import Meeting
from fake_service import FakeStore
from slowness import limit
from torch import Tensor

pytestmark = pytest.mark.unit

TIMEOUT_S = limit(20.0)


def tensors(worker: int, size: int) -> list[Tensor]:
    """Tensors of many kinds; some are the same on all workers."""
    return [
        torch.full((size,), float(worker)),
        torch.full((size,), 5.0),
        torch.tensor(worker),
        torch.tensor(worker % 2 == 0),
        torch.zeros(0),
        torch.full((2, 3), float(worker), dtype=torch.bfloat16).t(),
        torch.tensor([float("nan"), float("-inf"), float(worker)], dtype=torch.float64),
        torch.full((3,), complex(worker, 1)),
        torch.full((2,), worker, dtype=torch.uint8),
    ]


def taken(store: FakeStore, worker: int, workers: int, size: int) -> list[Tensor]:
    mine = tensors(worker, size)
    entries = [Entry(f"state.{place}", each) for place, each in enumerate(mine)]
    take_first_values(entries, Meeting(store, worker, workers, "test"), TIMEOUT_S)
    return mine


def together(store: FakeStore, workers: int, size: int) -> list[Any]:
    found: list[Any] = [None] * workers

    def run(worker: int) -> None:
        try:
            found[worker] = taken(store, worker, workers, size)
        except Exception as error:
            found[worker] = error

    threads = [threading.Thread(target=run, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def must_be(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    for mine, first in zip(found, expected, strict=True):
        assert mine.dtype == first.dtype
        assert torch.equal(mine.nan_to_num(9.0), first.nan_to_num(9.0))


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [1, 20_000])
def test_all_have_worker_0s(workers: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_values, "_PIECE_BYTES", 5000)
    for found in together(FakeStore(), workers, size):
        must_be(found, tensors(0, size))


def test_a_late_worker_gets_what_is_small() -> None:
    store = FakeStore()
    together(store, 2, 1)
    must_be(taken(store, 2, 2, 1), tensors(0, 1))


def test_a_late_worker_gets_what_is_large_if_another_one_lacked_it() -> None:
    store = FakeStore()
    together(store, 2, 20_000)
    must_be(taken(store, 2, 2, 20_000), tensors(0, 20_000))


def test_a_late_worker_hears_why_it_cannot_have_what_is_large() -> None:
    store = FakeStore()
    together(store, 1, 20_000)
    with pytest.raises(ValueError, match=r"state\.0 differs from worker 0's, and is too large"):
        taken(store, 1, 1, 20_000)


def test_nothing_large_travels_that_all_have() -> None:
    store = FakeStore()
    entries = [Entry("mask", torch.full((20_000,), -torch.inf))]
    other = threading.Thread(target=take_first_values, args=(entries, Meeting(store, 1, 2, "test"), TIMEOUT_S))
    other.start()
    take_first_values(entries, Meeting(store, 0, 2, "test"), TIMEOUT_S)
    other.join()
    sent = sum(
        len(store.get(key, 0.0)) for key in ("state/digests", "state/lacks/1", "state/given", "state/given/0")
    )
    assert sent < 2000


@pytest.mark.parametrize("worker", [0, 1])
def test_the_missing_worker_is_named(worker: int) -> None:
    entries = [Entry("mask", torch.zeros(3))]
    with pytest.raises(CommunicatorTimeoutError, match=f"worker {1 - worker} did not share"):
        take_first_values(entries, Meeting(FakeStore(), worker, 2, "test"), 0.05)


def test_without_tensors_nobody_waits() -> None:
    take_first_values([], Meeting(FakeStore(), 0, 2, "test"), 0.0)

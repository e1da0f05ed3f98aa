# SPDX-License-Identifier: Apache-2.0
"""Ranks that torchrun has started again find no keys of their earlier attempt."""

import threading

import pytest
import torch.distributed as dist
from braid import _attempts, _own_groups
from braid._array.rendezvous.stores import UserStore
from braid._attempts import word_of_attempt
from braid._errors import CommunicatorTimeoutError
from braid.data.board import Board
from slowness import limit
from torch.distributed import HashStore

pytestmark = pytest.mark.unit

WAIT_S = limit(60.0)


class Store(UserStore):
    """A store that says when somebody has looked."""

    def __init__(self) -> None:
        super().__init__(HashStore())
        self.looked = threading.Event()

    def get(self, key: str, timeout_s: float) -> bytes:
        try:
            return super().get(key, timeout_s)
        finally:
            self.looked.set()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    return Store()


def word(store: Store, *, is_first: bool, timeout_s: float = WAIT_S) -> str:
    return word_of_attempt(store, "key", is_first=is_first, timeout_s=timeout_s)


def test_all_of_one_attempt_have_its_word(store: Store) -> None:
    drawn = word(store, is_first=True)
    assert word(store, is_first=False) == drawn == word(store, is_first=False)


@pytest.mark.parametrize("first_counts", ["1", "0"])  # rank 0's agent may have come later
def test_an_earlier_attempt_has_another_word(store: Store, monkeypatch, first_counts: str) -> None:
    old = word(store, is_first=True)
    store.looked.clear()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(word(store, is_first=False)))
    waiting.start()
    assert store.looked.wait(WAIT_S)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", first_counts)
    new = word(store, is_first=True)
    waiting.join(WAIT_S)
    assert found == [new]
    assert new != old


def test_agents_that_count_fewer_attempts_take_the_word(store: Store, monkeypatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    drawn = word(store, is_first=True)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert word(store, is_first=False) == drawn


def test_agents_that_count_more_attempts_take_the_word_in_the_end(store: Store, monkeypatch) -> None:
    drawn = word(store, is_first=True)
    monkeypatch.setattr(_attempts, "_UNEQUAL_COUNTS_S", 0.1)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert word(store, is_first=False) == drawn


def test_whoever_waits_in_vain_hears_of_it(store: Store) -> None:
    with pytest.raises(TimeoutError):
        word(store, is_first=False, timeout_s=0.05)


def test_speeds_of_an_earlier_attempt_are_no_speeds(monkeypatch) -> None:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        board = Board(None)
        board.post("speeds", {"speed": 1.0})
        assert board.read("speeds") == [{"speed": 1.0}]
        monkeypatch.setattr(_own_groups, "_counted", _own_groups._counted.__class__())  # as in a new process
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
        with pytest.raises(CommunicatorTimeoutError, match="worker 0 did not come to the same batch"):
            Board(None, timeout_s=0.05).read("speeds")
    finally:
        dist.destroy_process_group()

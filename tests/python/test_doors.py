# SPDX-License-Identifier: Apache-2.0
"""Doors ask a store that ends with worker 0's process. After that nobody may ask."""

import os
import threading
from collections.abc import Callable, Iterator

import pytest
import torch.distributed as dist
from braid import CommunicatorError
from braid._array.rendezvous.stores import Below, KeyValueStore, UserStore
from braid.strategies import doors as under_test
from braid.strategies.doors import Doors, is_shut
from braid.strategies.store import join
from fake_service import FakeStore
from hypothesis import given, settings
from hypothesis import strategies as st
from slowness import limit


class Owner:
    """Owns threads that ask."""


class MortalStore(FakeStore):
    """A store that nobody may ask once it has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.has_ended = False
        self.asked_too_late: list[str] = []

    def set(self, key: str, value: bytes) -> None:
        self._ask(key)
        super().set(key, value)

    def get(self, key: str, timeout_s: float) -> bytes:
        self._ask(key)
        return super().get(key, timeout_s)

    def _ask(self, key: str) -> None:
        if self.has_ended:
            self.asked_too_late.append(key)
            raise RuntimeError("the store has ended")


class Asking:
    """A thread that asks through a door again and again, as a server's door does."""

    def __init__(self, door: KeyValueStore, leave: Callable[[], object]) -> None:
        self._door, self._leave = door, leave
        self._stopping, self._has_asked = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._has_asked.wait(limit(20))

    def _run(self) -> None:
        while not self._stopping.is_set():
            finds(self._door, "a late worker")
            self._has_asked.set()

    def end(self) -> None:
        self._stopping.set()
        self._thread.join(limit(20))
        self._leave()


def finds(store: KeyValueStore, key: str) -> bool:
    try:
        store.get(key, 0.001)
    except TimeoutError:
        return False
    return True


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Worker 0 waits as long as it takes."""
    monkeypatch.setattr(under_test, "_HEARING_S", limit(20))
    return


def opened(store: KeyValueStore, member: int, workers: int, owner: Owner) -> Asking:
    return Asking(*Doors(store, member, workers).open(owner, store.apart()))


def test_an_open_door_finds_keys() -> None:
    store, owner = FakeStore(), Owner()
    door, _ = Doors(store, 1, 2).open(owner, store)
    assert not finds(door, "worker 2")
    door.set("worker 2", b"has come")
    assert door.get("worker 2", 0.0) == b"has come"
    assert not is_shut(store)


@settings(deadline=None, max_examples=10)
@given(workers=st.integers(1, 5), late=st.integers(0, 2), early=st.sets(st.integers(1, 4)))
def test_nobody_asks_after_worker_0_has_left(workers: int, late: int, early: set[int]) -> None:
    store, owner = MortalStore(), Owner()
    others = {member: opened(store, member, workers, owner) for member in range(1, workers + late)}
    first = opened(store, 0, workers, owner)
    for member in early & set(others):
        others.pop(member).end()
    first.end()
    assert is_shut(store)
    store.has_ended = True
    for each in others.values():
        each.end()
    assert store.asked_too_late == []


def test_worker_0_waits_for_a_question_under_way() -> None:
    asked, answer = threading.Event(), threading.Event()

    class Slow(FakeStore):
        def get(self, key: str, timeout_s: float) -> bytes:
            if key == "slow":
                asked.set()
                assert answer.wait(limit(20))
            return super().get(key, timeout_s)

    store, owner = Slow(), Owner()
    doors = Doors(store, 1, 2)
    slow, _ = doors.open(owner, store)
    quick, _ = doors.open(owner, store)
    asking = threading.Thread(target=finds, args=(slow, "slow"), daemon=True)
    asking.start()
    assert asked.wait(limit(20))
    first = opened(store, 0, 2, owner)
    leaving = threading.Thread(target=first.end, daemon=True)
    leaving.start()
    store.get("doors/shut", limit(20))
    assert not finds(quick, "any key")
    assert not finds(store, "doors/heard/1")
    answer.set()
    for thread in (asking, leaving):
        thread.join(limit(20))
        assert not thread.is_alive()
    assert finds(store, "doors/heard/1")


def test_worker_0_does_not_wait_long_for_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_HEARING_S", 0.05)
    store, owner = FakeStore(), Owner()
    finds(Doors(store, 1, 3).open(owner, store)[0], "any key")  # it asks once, and never again
    alive = opened(store, 2, 3, owner)
    opened(store, 0, 3, owner).end()
    store.get("doors/heard/2", limit(20))
    alive.end()


def test_doors_stay_open_until_the_last_owner_leaves() -> None:
    store, first, second = FakeStore(), Owner(), Owner()
    doors = Doors(store, 0, 1)
    leave = doors.open(first, store)[1]
    doors.open(second, store)
    leave()
    leave()
    assert not is_shut(store)
    del second  # collected
    assert is_shut(store)


def test_a_forked_child_shuts_no_door() -> None:
    store, owner = FakeStore(), Owner()
    door, leave = Doors(store, 0, 1).open(owner, store)
    child = os.fork()
    if child == 0:
        leave()
        os._exit(is_shut(store))
    assert os.waitpid(child, 0)[1] == 0
    assert not finds(door, "any key")
    leave()
    assert is_shut(store)


def test_a_store_that_is_gone_is_no_error() -> None:
    store, owner = MortalStore(), Owner()
    leave = [Doors(store, member, 2).open(owner, store)[1] for member in range(2)]
    store.has_ended = True
    leave[1]()
    leave[0]()


def test_nobody_joins_after_worker_0_has_left() -> None:
    raw, owner = dist.HashStore(), Owner()
    folder = Below(UserStore(raw), "braid/strategies")
    folder.set("mine", b"token")
    store = Below(folder, "token")
    leave = Doors(store, 0, 1).open(owner, store)[1]
    assert [join(raw, "mine", 1.0).member for _ in range(2)] == [0, 1]
    leave()
    with pytest.raises(CommunicatorError, match="worker 0 of strategy 'mine' has left: nobody can join"):
        join(raw, "mine", 1.0)

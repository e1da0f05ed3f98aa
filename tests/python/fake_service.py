# SPDX-License-Identifier: Apache-2.0
"""A parameter service inside one process, with a thread per worker: for tests of what is above the real one."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy_rules import NumpyRule
from slowness import limit

TIMEOUT_S = limit(20.0)


class FakeStore:
    """A store with set and get for threads."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        assert value, f"{key} is empty: not every store takes that"
        with self._changed:
            self._values[key] = bytes(value)
            self._changed.notify_all()

    def get(self, key: str, timeout_s: float) -> bytes:
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, timeout_s):
                raise TimeoutError(key)
            return self._values[key]

    def apart(self) -> "FakeStore":
        return self


class _Hub:
    """What all members of a service share."""

    def __init__(self, elements: int, rule: str) -> None:
        self.changed = threading.Condition()
        self.values = np.zeros(elements, np.float32)
        self.rule = NumpyRule(rule, elements)
        self.version = 0
        self.is_filled = False
        self.settings: dict[int, str] = {}
        self.clocks: dict[int, int] = {}
        self.bases: dict[int, tuple[int, np.ndarray]] = {}
        self.round: dict[int, np.ndarray] = {}
        self.numbers: Any = None  # of the first in the round
        self.staleness: Counter[int] = Counter()
        self.order: list[int] = []

    def apply(
        self, member: int, update: np.ndarray, numbers: Any, scale: float, stale: bool
    ) -> tuple[int, np.ndarray | None]:
        base, backup = self.bases.get(member, (self.version, self.values))
        staleness = self.version - base
        self.staleness[staleness] += 1
        if stale and staleness > 1:
            numbers = [(end, {**those, "rate": those["rate"] / staleness}) for end, those in numbers]
        elastic = self.rule.apply(self.values, update, numbers, scale, backup)
        self.version += 1
        self.order.append(member)
        return staleness, elastic


class FakeRequest:
    def __init__(self, finish: Callable[[], bool], hub: "_Hub", staleness: int = 0) -> None:
        self._finish, self._hub, self.staleness = finish, hub, staleness

    def wait(self, timeout_s: float | None = None) -> None:
        if not self._finish():
            raise TimeoutError("the fake service waited too long")

    @property
    def versions(self) -> list[int]:
        return [self._hub.version]


class FakeService:
    """As _core.ParameterService.

    `made` has the arguments of each service that a test made, by name; `pushed` the numbers of all pushes.
    """

    hubs: dict[str, _Hub] = {}  # noqa: RUF012
    made: dict[str, dict[str, Any]] = {}  # noqa: RUF012
    pushed: list[Any] = []  # noqa: RUF012
    _lock = threading.Lock()

    @classmethod
    def forget(cls) -> None:
        cls.hubs, cls.made, cls.pushed = {}, {}, []

    def __init__(self, store: Any, door_store: Any, name: str, **settings: Any) -> None:
        expected = (
            "member workers servers elements shares rule settings mode staleness staleness_rate timeout_s late"
            " push_codec pull_codec consistency replicas who"
        )
        assert set(settings) == set(expected.split())
        vars(self).update(settings)
        with FakeService._lock:
            hub = FakeService.hubs.setdefault(name, _Hub(self.elements, self.rule))
            FakeService.made[name] = settings
        self._hub = hub
        with hub.changed:
            hub.settings[self.member] = self.settings
            hub.clocks[self.member] = min(hub.clocks.values(), default=0)
            hub.changed.notify_all()
            assert hub.changed.wait_for(lambda: len(hub.settings) >= self.workers, TIMEOUT_S)
            texts = set(hub.settings.values())
        if len(texts) > 1:
            raise ValueError(f"settings differ: {texts}")

    def start(self, initial: np.ndarray, out: np.ndarray) -> FakeRequest:
        hub = self._hub
        with hub.changed:
            if self.member == 0:
                hub.values[:] = initial
                hub.is_filled = True
                hub.changed.notify_all()
            assert hub.changed.wait_for(lambda: hub.is_filled, TIMEOUT_S)
            self._copy(out)
        return FakeRequest(lambda: True, hub)

    def push_pull(
        self,
        update: np.ndarray,
        out: np.ndarray,
        numbers: Any,
        scale: float = 1.0,
        based_on: Any = None,
        round_: int | None = None,
    ) -> FakeRequest:
        hub = self._hub
        FakeService.pushed.append(numbers)
        staleness, elastic = 0, None
        with hub.changed:
            hub.clocks.setdefault(self.member, max(hub.clocks.values(), default=0))
            hub.clocks[self.member] += 1
            clock = hub.clocks[self.member]
            if self.mode == "sync":
                if not hub.round:
                    hub.numbers = numbers
                hub.round[self.member] = scale * update
                target = hub.version + 1
                self._close_round()
            else:
                staleness, elastic = hub.apply(self.member, update, numbers, scale, self.staleness_rate)
            hub.changed.notify_all()

        def ready() -> bool:
            if self.mode == "sync":
                self._close_round()
                return hub.version >= target
            return self.mode != "ssp" or clock - min(hub.clocks.values()) <= self.staleness

        def finish() -> bool:
            with hub.changed:
                if not hub.changed.wait_for(ready, TIMEOUT_S):
                    return False
                self._copy(out)
                if elastic is not None:
                    out[:] = elastic
                return True

        return FakeRequest(finish, hub, staleness)

    def pull(self, out: np.ndarray) -> FakeRequest:
        def finish() -> bool:
            with self._hub.changed:
                self._copy(out)
            return True

        return FakeRequest(finish, self._hub)

    def snapshot(self) -> dict[str, Any]:
        hub = self._hub
        with hub.changed:
            vectors = [hub.values, *hub.rule.state]
            parts = [vector[part] for part in self._shards() for vector in vectors]
            numbers = np.concatenate(parts)
            counts = {"steps": 2 * [hub.rule.step], "versions": 2 * [hub.version]}
            return {"numbers": numbers, "vectors": len(vectors), **counts}

    def ends(self) -> list[int]:
        return [self.elements // 3, self.elements]  # as if there were two shards

    def _shards(self) -> list[slice]:
        return [slice(0, self.ends()[0]), slice(*self.ends())]

    def restore(self, numbers: np.ndarray, steps: list[int], versions: list[int]) -> None:
        hub = self._hub
        with hub.changed:
            begin = 0
            for part in self._shards():
                for vector in (hub.values, *hub.rule.state):
                    count = part.stop - part.start
                    vector[part] = numbers[begin : begin + count]
                    begin += count
            assert begin == numbers.size
            hub.rule.step = steps[0]

    def stats(self) -> dict[str, Any]:
        hub = self._hub
        with hub.changed:
            return {
                "versions": [hub.version],
                "staleness": dict(hub.staleness),
                "workers": sorted(hub.clocks),
                "order": list(hub.order),
            }

    def rest(self) -> FakeRequest:
        self._stop_the_clock()
        return FakeRequest(lambda: True, self._hub)

    def close(self, limit_s: float, why: str = "") -> None:
        self._stop_the_clock()

    def _stop_the_clock(self) -> None:
        with self._hub.changed:
            self._hub.clocks.pop(self.member, None)
            self._close_round()
            self._hub.changed.notify_all()

    def _close_round(self) -> None:
        hub = self._hub
        if hub.round and set(hub.clocks) <= set(hub.round):
            mean = sum(hub.round.values()) / len(hub.round)
            hub.round.clear()
            hub.apply(self.member, mean, hub.numbers, 1.0, False)
            hub.changed.notify_all()

    def _copy(self, out: np.ndarray) -> None:
        out[:] = self._hub.values
        self._hub.bases[self.member] = (self._hub.version, self._hub.values.copy())


class FakeCore:
    """In place of the module braid._core."""

    ParameterService = FakeService

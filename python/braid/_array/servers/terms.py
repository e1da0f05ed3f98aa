# SPDX-License-Identifier: Apache-2.0
"""What a job and a parameter server tell each other, and how much memory a server needs."""

import itertools
import json
import time
import zlib
from dataclasses import asdict, dataclass
from typing import Any

from braid import _core
from braid._array.rendezvous.stores import KeyValueStore
from braid._errors import CommunicatorTimeoutError

PROCESSES = "braid/serve/process"
ASKS = "braid/serve/ask"
GONE = "braid/serve/gone"
RUNNING = "braid/serve/running"
_SETTLE_S = 0.05  # how long two that take the same place need to see the conflict
_LOOKS = 5
_GLANCE_S = 0.001


@dataclass(frozen=True)
class Process:
    """A process of ``braid serve``: `id` tells it apart, `name` is for people."""

    id: str
    name: str


@dataclass(frozen=True)
class Vector:
    """A vector that servers are asked to hold; `part` tells the vectors of a strategy apart.

    `push_codec`, `pull_codec`: through which updates, or values, travel. `replicas`: copies of each shard.
    `share`: the largest part of the vector that a server holds, from 0 to 1; 0: all hold as much.
    """

    part: str
    elements: int
    rule: str
    mode: str = "async"
    push_codec: str = ""
    pull_codec: str = ""
    replicas: int = 0
    share: float = 0.0

    def needs(self, workers: int, servers: int) -> tuple[int, int]:
        """Return the bytes that one server needs for it: whatever it holds, and in all with its part."""
        settings = {name: value for name, value in asdict(self).items() if name != "part"}
        return _core.parameter_server_needs(workers=workers, servers=servers, **settings)


@dataclass(frozen=True)
class Offer:
    """What worker 0 asks a parameter server.

    Attributes:
        token: unique to the asking strategy.
        folder: where the strategy's keys lie in the store.
        name: of the strategy.
        workers: how many begin.
        servers: how many hold shards.
        vectors: what they hold.
        patience_s: how long worker 0 waits for servers.
        kind: what asks, for messages.
    """

    token: str
    folder: str
    name: str
    workers: int
    servers: int
    vectors: tuple[Vector, ...]
    patience_s: float
    kind: str = "strategy"

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.kind} {self.name!r}"

    @property
    def nbytes(self) -> int:
        """The memory that one server needs for its shards, and for all that is on its way."""
        return sum(vector.needs(self.workers, self.servers)[1] for vector in self.vectors)

    def numbers_within(self, nbytes: int) -> list[int]:
        """Return how many numbers of each vector a server holds in that much memory: its part at most."""
        needs = [vector.needs(self.workers, self.servers) for vector in self.vectors]
        fixed = sum(least for least, _ in needs)
        share = (nbytes - fixed) / max(1, sum(whole for _, whole in needs) - fixed)
        parts = [-(-vector.elements // self.servers) for vector in self.vectors]
        return [int(part * min(1.0, max(0.0, share))) for part in parts]

    def pack(self) -> bytes:
        """Return it as bytes."""
        return pack(asdict(self))

    @staticmethod
    def of(value: bytes) -> "Offer":
        """Return what pack() made."""
        found = unpack(value)
        return Offer(**{**found, "vectors": tuple(Vector(**vector) for vector in found["vectors"])})


def pack(value: object) -> bytes:
    """Return a value as bytes for a store."""
    return zlib.compress(json.dumps(value).encode())


def unpack(value: bytes) -> dict[str, Any]:
    """Return what pack() made."""
    found: dict[str, Any] = json.loads(zlib.decompress(value))
    return found


def glance(store: KeyValueStore, key: str) -> bytes | None:
    """Return the value of a key, or None if there is none yet.

    Raises:
        CommunicatorTimeoutError: the store itself is gone.
    """
    try:
        return store.get(key, _GLANCE_S)
    except CommunicatorTimeoutError:  # a TimeoutError, too
        raise
    except TimeoutError:
        return None


def claim(store: KeyValueStore, folder: str, value: bytes) -> str:
    """Write a value that nobody else writes at the first free number of a folder, and return the key.

    Stores have no test-and-set. Whoever comes second overwrites, and the first one sees that after a moment. So
    whoever was held up after it looked looks again before it writes.
    """
    for number in itertools.count():
        key = f"{folder}/{number}"
        for _ in range(_LOOKS):
            begun = time.monotonic()
            is_free = glance(store, key) is None
            if not is_free or time.monotonic() - begun < _SETTLE_S / 2:
                break
        if not is_free:
            continue
        store.set(key, value)
        time.sleep(_SETTLE_S)
        if glance(store, key) == value:
            return key
    raise AssertionError


def size_text(nbytes: int) -> str:
    """Return a size for people: ``"1.5 GiB"``."""
    size, units = float(nbytes), ("bytes", "KiB", "MiB", "GiB", "TiB")
    for unit in units:
        if size < 1024 or unit == units[-1]:
            return f"{size:.4g} {unit}"
        size /= 1024
    raise AssertionError

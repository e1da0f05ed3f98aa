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
_FLOAT_BYTES = 4
_BUFFERS = 4  # updates that a server of the core holds at a time


@dataclass(frozen=True)
class Process:
    """A process of ``braid serve``: `id` tells it apart, `name` is for people."""

    id: str
    name: str


@dataclass(frozen=True)
class Vector:
    """A vector that servers are asked to hold; `part` tells the vectors of a strategy apart.

    `is_push_coded`, `is_pull_coded`: updates, or values, travel through a codec. `replicas`: copies of each shard.
    """

    part: str
    elements: int
    rule: str
    mode: str = "async"
    is_push_coded: bool = False
    is_pull_coded: bool = False
    replicas: int = 0


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
        """The memory that one server needs for its shards, and for updates on their way."""
        total = 0
        for vector in self.vectors:
            copies = 1 + _core.rule_states(vector.rule) + _BUFFERS
            copies += _BUFFERS if vector.is_push_coded else 0  # at most: encoded updates, behind their numbers
            copies += self.workers if vector.is_pull_coded else 0
            copies += self.workers if "compensates" in vector.rule else 0
            copies += 1 if vector.mode == "sync" else 0
            # One on its way to another server, one on its way from there, and that server's copy.
            copies += 3 * vector.replicas * (1 + _core.rule_states(vector.rule))
            total += _FLOAT_BYTES * copies * -(-vector.elements // self.servers)
        return total

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

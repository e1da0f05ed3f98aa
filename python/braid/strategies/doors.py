# SPDX-License-Identifier: Apache-2.0
"""The doors of a strategy: threads that ask the job's store for late members, until worker 0 leaves.

Worker 0's process often has the store, which ends with it. torch writes a long trace for each question that a
store does not answer. So worker 0, before it leaves, tells all doors to ask no more, and waits until they have
heard.
"""

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator

from braid._array.rendezvous.stores import KeyValueStore

_SHUT = "doors/shut"
_GLANCE_S = 0.001
# How long worker 0 waits for the doors of others, each of which asks several times a second.
_HEARING_S = 2.0
_PAUSE_S = 0.05  # a closed door asks nobody, and so must not ask in a tight loop


class Doors:
    """The doors of one member."""

    def __init__(self, store: KeyValueStore, member: int, workers: int) -> None:
        """Note where the doors ask.

        Args:
            store: of the strategy.
            member: the number of this process.
            workers: how many began together. Late members have numbers from there on.
        """
        self._store, self._member, self._workers = store, member, workers
        self._lock = threading.RLock()  # an owner can be collected anywhere, and then leaves
        self._owners = 0
        self._process = os.getpid()
        self._asking = 0  # threads that are in the store now
        self._has_opened = self._are_shut = self._has_said = False

    def open(self, owner: object, store: KeyValueStore) -> tuple[KeyValueStore, Callable[[], object]]:
        """Open the doors for one more owner of threads.

        Args:
            owner: leaves when it is collected, if not before.
            store: the strategy's store, for these threads.

        Returns:
            The store in which its threads may ask, and find no key once the doors are shut; and a function to call
            when they ask no more. The last owner shuts the doors of all others, if this is worker 0.
        """
        with self._lock:
            self._owners += 1
        leave = weakref.finalize(owner, self._leave)
        leave.atexit = False  # owners are closed then; and forked children, which have no doors, end, too
        return _Door(self, store), leave

    def _leave(self) -> None:
        if os.getpid() != self._process:
            return
        with self._lock:
            self._owners -= 1
            if self._owners:
                return
            self._are_shut = True
        with contextlib.suppress(Exception):  # the store is gone, and so its process has ended
            if self._member == 0:
                self._shut_others()
            else:
                self._say_once()

    @contextlib.contextmanager
    def asking(self, store: KeyValueStore) -> Iterator[bool]:
        """Enter the store, unless doors are shut. Gives whether they are open."""
        with self._lock:
            is_open = not self._are_shut
            self._asking += is_open
        if not is_open:
            yield False
            return
        try:
            yield not self._hear(store)
        finally:
            with self._lock:
                self._asking -= 1
            self._say_once()

    def _hear(self, store: KeyValueStore) -> bool:
        if not self._has_opened:
            store.set(_has_door(self._member), b"yes")
            self._has_opened = True
        if self._member == 0 or not _has(store, _SHUT):
            return False
        self._are_shut = True
        return True

    def _say_once(self) -> None:
        with self._lock:
            if not self._are_shut or self._asking or self._has_said or not self._has_opened:
                return
            self._has_said = True
        with contextlib.suppress(Exception):  # worker 0 did not wait so long
            self._store.set(_has_heard(self._member), b"yes")

    def _shut_others(self) -> None:
        self._store.set(_SHUT, b"yes")
        until = time.monotonic() + _HEARING_S
        member = 0
        while (member := member + 1) < self._workers or _has(self._store, _has_door(member)):
            if _has(self._store, _has_door(member)):
                _has(self._store, _has_heard(member), max(_GLANCE_S, until - time.monotonic()))


class _Door(KeyValueStore):
    def __init__(self, doors: Doors, store: KeyValueStore) -> None:
        self._doors, self._store = doors, store

    def set(self, key: str, value: bytes) -> None:
        with self._doors.asking(self._store) as is_open:
            if is_open:
                self._store.set(key, value)

    def get(self, key: str, timeout_s: float) -> bytes:
        with self._doors.asking(self._store) as is_open:
            if is_open:
                return self._store.get(key, timeout_s)
        time.sleep(min(timeout_s, _PAUSE_S))
        raise TimeoutError(f"the doors are shut, so nobody asks for {key!r}")

    def apart(self) -> KeyValueStore:
        return _Door(self._doors, self._store.apart())


def is_shut(store: KeyValueStore) -> bool:
    """Return whether worker 0 has left, so that nobody can join the strategy of this store any more."""
    return _has(store, _SHUT)


def _has(store: KeyValueStore, key: str, timeout_s: float = _GLANCE_S) -> bool:
    with contextlib.suppress(TimeoutError):
        store.get(key, timeout_s)
        return True
    return False


def _has_door(member: int) -> str:
    return f"doors/of/{member}"


def _has_heard(member: int) -> str:
    return f"doors/heard/{member}"

# SPDX-License-Identifier: Apache-2.0
"""The other workers: their vectors, who of them is gone, and who has come."""

import contextlib
import threading
from collections.abc import Callable

from braid._array.rendezvous.stores import KeyValueStore
from braid._errors import CommunicatorError
from braid._notices import tell
from braid._threads import OwnThread
from braid.strategies.gossip.vector import WorkerVector
from braid.strategies.store import Meeting

_LOOK_S = 0.5  # how often somebody looks for late workers
_AHEAD = 4  # numbers of late workers that are looked for at a time: one may have died before it said so
_APART_S = 0.2  # workers come to a late one one after the other
_GLANCE_S = 0.001
_YES = b"yes"
# Of the core, whose error names all servers of a service. That of a worker's vector has only this one.
_NO_OTHER = "no parameter server is left: "

Connect = Callable[[KeyValueStore, int], WorkerVector]


class Members:
    """Connects with all workers, and with late ones as they come. Any thread may call."""

    def __init__(self, meeting: Meeting, connect: Connect) -> None:
        """Connect with all workers that have begun. A late worker leaves out those that are known to be dead.

        Args:
            meeting: where workers meet.
            connect: makes the vector of a worker, with a store.
        """
        self.me, self.workers = meeting.member, meeting.workers
        self._meeting, self._connect = meeting, connect
        self._lock = threading.Lock()
        self._store, self._shut_door = meeting.doors.open(self, meeting.store.apart())
        self._peers: dict[int, WorkerVector] = {}
        self._gone: set[int] = set()
        self._have_come: set[int] = set()  # workers that have ever been connected with this one's server
        self._stopping = threading.Event()
        self._news = threading.Event()  # for the door: somebody is gone, or this worker stops
        numbers = list(range(self.workers))
        if meeting.is_late:
            late = self._late_numbers(range(meeting.member))
            numbers = [number for number in [*numbers, *late] if not self._says(f"gone/{number}")]
        own: WorkerVector | None = None
        try:
            for number in numbers:
                # The same order everywhere, else workers would wait for each other in a circle.
                if number == self.me:
                    own = connect(self._store, number)
                else:
                    self._try_to_reach(number, self._store)
            self.own = own if own is not None else connect(self._store, self.me)
        except BaseException:
            for vector in [*self._peers.values(), *([own] if own is not None else [])]:
                vector.close()
            raise
        if meeting.is_late and not self._peers:
            self.own.close()
            raise CommunicatorError("none of the workers that began together is left: there is nobody to join")
        self._doorman = OwnThread(self._look_for_late, "braid gossip door", self.close)

    def open(self) -> None:
        """Let late workers in from now on. A late worker says that it is here."""
        with self._lock:  # those who began together are here; whoever leaves before the first look is missed, too
            self._have_come |= self.own.peers()
        if self._meeting.is_late:
            self._store.set(f"came/{self.me}", _YES)
        self._doorman.start()

    def living(self) -> list[int]:
        """Return the numbers of all workers that are connected and not gone, and this one, in order."""
        here = self.own.peers()
        with self._lock:
            left = self._have_come - here
            self._have_come |= here
        for number in left:
            self.lose(number)
        with self._lock:
            return sorted([self.me, *self._peers])

    def vector(self, number: int) -> WorkerVector | None:
        """Return the vector of another worker, or None if it is gone."""
        with self._lock:
            return self._peers.get(number)

    def peers(self) -> list[WorkerVector]:
        """Return the vectors of the others that live, by number."""
        return [vector for number in self.living() if (vector := self.vector(number)) is not None]

    def lose(self, number: int, why: str = "") -> None:
        """Exchange no more with this worker."""
        with self._lock:
            vector = self._peers.pop(number, None)
            is_new = number not in self._gone
            self._gone.add(number)
        self._news.set()
        if vector is not None:
            vector.close()
        if is_new and why and not self._stopping.is_set():
            tell(f"gossip goes on without worker {number}: {why.rpartition(_NO_OTHER)[2]}")

    def close(self) -> None:
        """Leave: first the others' vectors, so that they stop to come to this one."""
        self._stopping.set()
        self._news.set()
        if self._doorman.is_alive() and self._doorman is not threading.current_thread():
            self._doorman.join(2 * _LOOK_S)
        with self._lock:
            vectors = list(self._peers.values())
            self._peers.clear()
        for vector in vectors:
            vector.close()
        self.own.close()
        self._shut_door()

    def _look_for_late(self) -> None:
        store = self._store.apart()
        told: set[int] = set()
        while not self._stopping.is_set():
            self._news.wait(_LOOK_S)
            self._news.clear()
            try:
                with self._lock:
                    known = {*self._peers, *self._gone, self.me}
                    gone = self._gone - told
                for number in gone:
                    store.set(f"gone/{number}", _YES)
                    told.add(number)
                first = self.workers
                last = max(max(known, default=0) + 1, first) + _AHEAD
                for number in self._late_numbers(range(first, last), store):
                    if number not in known and not self._stopping.is_set():
                        self._stopping.wait(_APART_S * (self.me % 16))
                        self._try_to_reach(number, store)
            except Exception:
                return  # the store has ended with its process: nobody can come any more

    def _try_to_reach(self, number: int, store: KeyValueStore) -> None:
        is_late = self._meeting.is_late or number >= self.workers
        try:
            vector = self._connect(store, number)
        except CommunicatorError as error:
            if not is_late:
                raise
            self.lose(number, str(error))
            return
        with self._lock:
            is_welcome = not self._stopping.is_set()
            if is_welcome:
                self._peers[number] = vector
        if not is_welcome:
            vector.close()

    def _late_numbers(self, numbers: range, store: KeyValueStore | None = None) -> list[int]:
        return [number for number in numbers if number >= self.workers and self._says(f"came/{number}", store)]

    def _says(self, key: str, store: KeyValueStore | None = None) -> bool:
        with contextlib.suppress(TimeoutError):
            return (store or self._store).get(key, _GLANCE_S) == _YES
        return False

# SPDX-License-Identifier: Apache-2.0
"""The exchange engine of one worker: a thread that averages with others while the training thread computes."""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from torch import Tensor

from braid import _services
from braid._errors import CommunicatorError
from braid._threads import OwnThread
from braid.strategies.gossip.choice import Choice
from braid.strategies.gossip.exchanges import Exchange, Seen
from braid.strategies.gossip.local import Local
from braid.strategies.gossip.members import Members
from braid.strategies.gossip.options import GossipOptions
from braid.strategies.gossip.together import mean_of
from braid.strategies.gossip.vector import WorkerVector, new_vector

_SEEN = 50  # the distance is the mean of so many exchanges


class Engine:
    """Exchanges with one peer at a time, whenever the training thread says that it is time.

    Attributes:
        name, member, workers: as braid.stats() shows them.
        met: exchanges of this worker, and those that chance has left out: nobody has to wait for more.
        trace: called with (kind, peer, versions) after each exchange; for tests.
    """

    def __init__(self, name: str, members: Members, local: Local, options: GossipOptions) -> None:
        """Start the thread."""
        self.name, self.member, self.workers = name, members.me, members.workers
        self._members, self._local, self._options = members, local, options
        self.choice = Choice(options, members.me, members.workers)
        self.exchange = Exchange(local, options.mode)
        self.trace: Callable[[str, int, tuple[int, int, int]], None] | None = None
        self.exchanges = self.skipped = self.lost = self.met = 0
        self._distances: deque[float] = deque(maxlen=_SEEN)
        self._changed = threading.Condition()
        self._turn = 0
        self._is_due = self._is_wanted = self._is_busy = self._stops = False
        self._error: BaseException | None = None
        self._thread = OwnThread(self._work, "braid gossip", self.abandon)
        self._thread.start()
        _services.register(self)

    def due(self) -> None:
        """Let an exchange begin. If the last one is not finished, this one is left out."""
        with self._changed:
            self._raise_error()
            self._turn += 1
            if self._is_due or self._is_busy:
                self.skipped += 1
                return
            self._is_due = True
            self._changed.notify_all()

    def meet_now(self) -> None:
        """Exchange with some neighbour, whose turn it may be to begin, and wait for that.

        Raises:
            CommunicatorError: this worker cannot go on.
        """
        with self._changed:
            self._turn += 1
            self._is_due = self._is_wanted = True
            self._changed.notify_all()
        self.wait()
        with self._changed:
            self._raise_error()

    def has_neighbours(self) -> bool:
        """Return whether there is a worker with whom this one could exchange."""
        return bool(self.choice.neighbours(self._members.living()).members)

    def wait(self) -> None:
        """Return when no exchange is under way."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._is_due or self._is_busy) or self._stops)

    def meet(self, peer: WorkerVector) -> Seen | None:
        """Exchange with a peer, on this thread. None if it failed, or there was nothing to send."""
        begun = time.perf_counter()
        try:
            if not self.exchange.read():
                self.skipped += 1
                return None
            seen = self.exchange.send(peer)
        except CommunicatorError as error:
            if (why := self._members.own.failure()) is not None:
                raise CommunicatorError(why) from error
            if not self._stops:
                self.lost += 1
                self._members.lose(peer.owner, str(error))
            return None
        self.exchanges += 1
        self.met += 1
        self.choice.learn(peer.owner, time.perf_counter() - begun, seen)
        if seen.distance is not None:
            self._distances.append(seen.distance)
        if self.trace is not None:
            self.trace(self._options.mode, peer.owner, seen.versions)
        return seen

    def mean(self, absent: Collection[int] = ()) -> Tensor:
        """Return the mean of the values of all workers that live, by weight; shape (elements,), float32.

        Args:
            absent: numbers of workers that do not count.
        """
        vectors = [*(peer for peer in self._members.peers() if peer.owner not in absent), self._members.own]
        return mean_of(self._members, vectors, self._local.packing.elements)

    def living(self) -> list[int]:
        """Return the numbers of the workers that live, and this one."""
        return self._members.living()

    def stats(self) -> dict[str, Any]:
        """Return the counters; Gossip.stats() says what they are."""
        peers = self._members.peers()
        services = [peer.stats() for peer in peers]
        around = self.choice.neighbours(self._members.living())
        distances = list(self._distances)
        is_weighted = self._options.is_weighted
        weight = self._local.values(new_vector(self._local.packing.elements)) if is_weighted else 1.0
        return {
            "exchanges": self.exchanges,
            "skipped": self.skipped,
            "lost_exchanges": self.lost,
            "peers": [peer.owner for peer in peers],
            "neighbours": list(around.members),
            "is_active": around.is_active,
            "wires": {peer.owner: row["wires"][0] for peer, row in zip(peers, services, strict=True)},
            "sent_bytes": sum(row["sent_bytes"][0] for row in services),
            "received_bytes": sum(row["received_bytes"][0] for row in services),
            "exchange_s": dict(self.choice.exchange_s),
            "consensus_distance": sum(distances) / len(distances) if distances else None,
            "weight": weight,
            "lost_weight": self.exchange.lost_weight,
        }

    def close(self, limit_s: float) -> None:
        """Finish the exchange under way, for so many seconds at most, and leave. Idempotent."""
        _services.forget(self)
        with self._changed:
            self._stops = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join(limit_s)
        self._members.close()
        self._thread.join(limit_s or 1.0)

    def abandon(self) -> None:
        """Leave at once."""
        self.close(0.0)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise CommunicatorError(f"gossip has stopped: {self._error}") from self._error

    def _work(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_due or self._stops)
                if self._stops:
                    return
                is_wanted = self._is_wanted
                self._is_due, self._is_wanted, self._is_busy = False, False, True
                turn = self._turn - 1
            try:
                living = self._members.living()
                is_left_out = not is_wanted and self.choice.leaves_out(living)
                self.met += is_left_out
                number = None if is_left_out else self.choice.next(living, turn, is_wanted=is_wanted)
                peer = self._members.vector(number) if number is not None else None
                if peer is not None:
                    self.meet(peer)
            except BaseException as error:
                with self._changed:
                    if not self._stops:
                        self._error = error
                    self._is_busy, self._stops = False, True
                    self._changed.notify_all()
                return

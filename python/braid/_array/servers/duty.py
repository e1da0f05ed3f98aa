# SPDX-License-Identifier: Apache-2.0
"""A parameter server's part: writes itself down, answers those who ask, and holds shards for them."""

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from braid import _core
from braid._array.rendezvous.stores import Below, KeyValueStore
from braid._array.servers.placement import FIRST_ALONE
from braid._array.servers.terms import (
    ASKS,
    GONE,
    PROCESSES,
    RUNNING,
    Offer,
    Process,
    Vector,
    claim,
    glance,
    pack,
    size_text,
    unpack,
)

_PAUSE_S = 0.05
_CHECK_S = 1.0
_GRACE_S = 30.0  # worker 0 says whom it took, and the settings: this much later than it may wait


class Duty(threading.Thread):
    """One vector of one strategy, held by this process until all its workers have left."""

    def __init__(
        self,
        store: KeyValueStore,
        offer: Offer,
        vector: Vector,
        member: int,
        reach: str,
        say: Callable[[str], None],
        memory: _core.MemoryBudget,
        takes: int | None = None,
    ) -> None:
        """Make the thread.

        Args:
            store: the job's.
            offer: what was asked of this process, which has set the memory for it apart.
            vector: the part of it that this thread holds.
            member: the number of this server.
            reach: a host that the job's ranks reach.
            say: takes a line about what happens.
            memory: what the process has beside; a server takes from it for workers that come late, and for shards
                of servers that are lost.
            takes: how many elements a process that comes late holds at most. Nothing is set apart for it.
        """
        super().__init__(daemon=True, name=f"{offer.name}/{vector.part}")
        self._takes, self._memory = takes, memory
        self._say = say
        self._store, self._offer, self._vector = Below(store.apart(), offer.folder), offer, vector
        self._member, self._reach = member, reach
        self._ending = threading.Event()
        self.failure = ""
        self.updates = 0
        self.has_given = False  # its shards are at other servers now
        self.is_serving = False  # workers may need what it holds
        self.has_served = False

    def run(self) -> None:
        """Wait for the settings, serve, and leave."""
        try:
            self._serve()
        except Exception as error:
            self.failure = next(iter(str(error).splitlines()), type(error).__name__)

    def stop(self) -> None:
        """Give the shards to other servers, and end when no worker needs this one any more."""
        self._ending.set()

    def _serve(self) -> None:
        key = f"serve/{self._vector.part}"
        settings = unpack(self._store.get(key, self._offer.patience_s + _GRACE_S))
        if self._takes is None:
            settings["promised_bytes"] = self._vector.needs(self._offer.workers, self._offer.servers)[1]
        else:
            settings["newcomer_takes"] = self._takes
        core = _core.ParameterService(
            self._store.apart(),
            self._store.apart(),
            f"{self._offer.name}/{self._vector.part}",
            member=self._member,
            reach=self._reach,
            memory=self._memory,
            **settings,
        )
        self.is_serving = self.has_served = True
        has_asked = is_told = False
        has_shards = self._takes is None
        try:
            while True:
                time.sleep(_PAUSE_S)
                told = core.stats()
                self.updates = told["updates"]
                if not has_shards and told["versions"]:
                    has_shards = True
                    self._say(f"has come late to strategy {self._offer.name!r}, and takes shards")
                if failure := core.failure():
                    raise RuntimeError(failure)
                if not told["workers"]:
                    self.has_given = core.is_leaving()
                    return
                if self._ending.is_set() and not has_asked:
                    core.leave()
                    has_asked = True
                if has_asked and not is_told and not core.is_leaving():
                    is_told = True
                    self._say(f"no other server is left for strategy {self._offer.name!r}; this one stays with it")
        finally:
            self.is_serving = False
            core.close(0.0)


@dataclass
class _Strategy:
    """A strategy that has asked for this process."""

    offer: Offer
    until: float  # then worker 0 has said whom it took
    nbytes: int  # of memory, set apart for it
    duties: list[Duty] = field(default_factory=list)
    is_late: bool = False

    @property
    def is_over(self) -> bool:
        return bool(self.duties) and not any(duty.is_alive() for duty in self.duties)


class ParameterServer:
    """A process that holds shards for the strategies of a job, as many as its memory takes."""

    def __init__(
        self, store: KeyValueStore, name: str, memory: int, reach: str, say: Callable[[str], None]
    ) -> None:
        """Write this process down in the job's store.

        Args:
            store: the job's.
            name: for people.
            memory: how many bytes all strategies may take.
            reach: a host that the job's ranks reach; this process listens where the route there leads.
            say: takes a line about each strategy that begins and ends.
        """
        self._store, self._reach, self._say = store, reach, say
        self._total, self._memory = memory, _core.MemoryBudget(memory)
        self._process = Process(secrets.token_hex(8), name)
        self._card = pack(asdict(self._process))
        self._place = claim(store, PROCESSES, self._card)
        self._asks = 0
        self._first_ask: bytes | None = None
        self._seen = 0  # strategies that have begun
        self._first_seen: bytes | None = None
        self._heard: set[str] = set()  # tokens of strategies that have asked, or were joined
        self._checked_at = time.monotonic()
        self._strategies: list[_Strategy] = []
        self.served = 0  # strategies, so far

    @property
    def is_busy(self) -> bool:
        """Whether it holds shards, or has promised to."""
        return bool(self._strategies)

    def look(self) -> None:
        """Answer those who have asked; begin and end what is due. Raises what the store raises."""
        self._begin_and_end()
        if (first := glance(self._store, f"{ASKS}/{self._process.id}/0")) != self._first_ask:
            self._first_ask, self._asks = first, 0  # the store has begun anew
        running = self._new_running()  # before the asks: whoever runs has asked before
        while (value := glance(self._store, f"{ASKS}/{self._process.id}/{self._asks}")) is not None:
            self._asks += 1
            self._answer(Offer.of(value))
        self._join(running)
        if time.monotonic() > self._checked_at + _CHECK_S:
            self._checked_at = time.monotonic()
            if glance(self._store, self._place) != self._card:  # another process took the place at the same time
                self._place = claim(self._store, PROCESSES, self._card)

    def tend(self) -> None:
        """As look(), where the store is gone: only end what is over."""
        for strategy in [each for each in self._strategies if not each.duties]:
            self._drop(strategy)
        self._begin_and_end()

    def leave(self) -> None:
        """Say in the store that this process takes no more strategies."""
        with contextlib.suppress(Exception):
            self._store.set(f"{GONE}/{self._process.id}", b"gone")

    def stop(self) -> None:
        """Give all shards to other servers. It is done when `is_serving` is False."""
        for strategy in self._strategies:
            for duty in strategy.duties:
                duty.stop()

    @property
    def is_serving(self) -> bool:
        """Whether workers may need what it holds."""
        return any(duty.is_serving for strategy in self._strategies for duty in strategy.duties)

    @property
    def has_threads(self) -> bool:
        """Whether a thread still works, or waits for workers."""
        return any(duty.is_alive() for strategy in self._strategies for duty in strategy.duties)

    def _answer(self, offer: Offer) -> None:
        self._heard.add(offer.token)
        if any(strategy.offer.token == offer.token for strategy in self._strategies):
            return  # asked twice
        self._begin_and_end()  # those who ask one after the other have said whom they chose before
        taken, needed = self._total - self._memory.left(), offer.nbytes
        why = ""
        if self._memory.take(needed):
            until = time.monotonic() + offer.patience_s + _GRACE_S
            self._strategies.append(_Strategy(offer, until, needed))
        else:
            beside = f" beside the {size_text(taken)} of other strategies" if taken else ""
            why = (
                f"has {size_text(self._total)} of memory, and its part of this strategy needs "
                f"{size_text(needed)}{beside}: give it more with --memory, or start more servers"
            )
        self._store.set(f"{offer.folder}/serve/answer/{self._process.id}", pack({"why": why}))

    def _drop(self, strategy: _Strategy) -> None:
        self._strategies.remove(strategy)
        self._memory.give_back(strategy.nbytes)

    def _new_running(self) -> list[Offer]:
        """Return the strategies that have begun since the last look."""
        if (first := glance(self._store, f"{RUNNING}/0")) != self._first_seen:
            self._first_seen, self._seen = first, 0  # the store has begun anew
        found = []
        while (value := glance(self._store, f"{RUNNING}/{self._seen}")) is not None:
            self._seen += 1
            found.append(Offer.of(value))
        return found

    def _join(self, offers: list[Offer]) -> None:
        """Join strategies that began before this process came: those that have not asked it."""
        for offer in offers:
            if offer.token in self._heard:
                continue
            self._heard.add(offer.token)
            # Nothing is set apart: it may be over long ago.
            strategy = _Strategy(offer, 0.0, 0, is_late=True)
            for vector, takes in zip(offer.vectors, offer.numbers_within(self._memory.left()), strict=True):
                strategy.duties.append(self._duty(offer, vector, FIRST_ALONE, takes))
            self._strategies.append(strategy)
            for duty in strategy.duties:
                duty.start()

    def _duty(self, offer: Offer, vector: Vector, member: int, takes: int | None = None) -> Duty:
        return Duty(self._store, offer, vector, member, self._reach, self._say, self._memory, takes)

    def _begin_and_end(self) -> None:
        for strategy in list(self._strategies):
            if strategy.is_over:
                self._drop(strategy)
                self._tell_of_end(strategy)
            elif not strategy.duties:
                self._begin_if_chosen(strategy)

    def _begin_if_chosen(self, strategy: _Strategy) -> None:
        offer = strategy.offer
        value = glance(self._store, f"{offer.folder}/serve/chosen")
        chosen: list[Any] = unpack(value)["ids"] if value is not None else []
        if self._process.id not in chosen:
            if value is not None or time.monotonic() > strategy.until:
                self._drop(strategy)
            return
        member = FIRST_ALONE + chosen.index(self._process.id)
        strategy.duties = [self._duty(offer, vector, member) for vector in offer.vectors]
        for duty in strategy.duties:
            duty.start()
        self.served += 1
        workers = "1 worker" if offer.workers == 1 else f"{offer.workers} workers"
        number = f"server {chosen.index(self._process.id) + 1} of {len(chosen)}"
        self._say(f"{number} for strategy {offer.name!r} of {workers}, up to {size_text(offer.nbytes)}")

    def _tell_of_end(self, strategy: _Strategy) -> None:
        name = strategy.offer.name
        if strategy.is_late and not any(duty.has_served for duty in strategy.duties):
            return  # it was over already
        self.served += strategy.is_late
        if failures := [duty.failure for duty in strategy.duties if duty.failure]:
            self._say(f"strategy {name!r} is over: {failures[0]}")
        elif strategy.duties[0].has_given:
            self._say(f"strategy {name!r} goes on with other servers, after {strategy.duties[0].updates} updates")
        else:
            self._say(f"strategy {name!r} is over after {strategy.duties[0].updates} updates")

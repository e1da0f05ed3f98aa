# SPDX-License-Identifier: Apache-2.0
"""Worker 0's part: finds parameter servers in the job's store, and takes as many as a strategy wants."""

import itertools
import time
from dataclasses import dataclass, field

from braid._array.rendezvous.stores import KeyValueStore
from braid._array.servers.terms import ASKS, GONE, PROCESSES, RUNNING, Offer, Process, claim, glance, pack, unpack
from braid._errors import CommunicatorTimeoutError
from braid._notices import tell

_PAUSE_S = 0.02
_NOTICE_S = 5.0
# A process that does not answer is dead, or its ask was overwritten by somebody else's. Then it is asked again.
_ANSWER_S = 3.0


@dataclass
class _Asked:
    process: Process
    at: float
    answer: str | None = None


@dataclass
class _Round:
    store: KeyValueStore
    offer: Offer
    asked: dict[str, _Asked] = field(default_factory=dict)

    def look(self) -> None:
        """Ask processes that are new, and read answers."""
        # All of them each time: after a restart of the store one may write itself over another one.
        for number in itertools.count():
            value = glance(self.store, f"{PROCESSES}/{number}")
            if value is None:
                break
            process = Process(**unpack(value))
            if process.id not in self.asked and glance(self.store, f"{GONE}/{process.id}") is None:
                self._ask(process)
        for asked in list(self.asked.values()):
            if asked.answer is None:
                value = glance(self.store, f"{self.offer.folder}/serve/answer/{asked.process.id}")
                if value is not None:
                    asked.answer = unpack(value)["why"]
                elif time.monotonic() > asked.at + _ANSWER_S and self._is_gone(asked.process):
                    del self.asked[asked.process.id]

    def _ask(self, process: Process) -> None:
        self.asked[process.id] = _Asked(process, time.monotonic())
        claim(self.store, f"{ASKS}/{process.id}", self.offer.pack())

    def _is_gone(self, process: Process) -> bool:
        if glance(self.store, f"{GONE}/{process.id}") is not None:
            return True
        self._ask(process)
        return False


def engage(store: KeyValueStore, offer: Offer, wanted: int, address: str) -> list[Process]:
    """Return as many parameter servers as are wanted. They begin as soon as they find their settings.

    Args:
        store: the job's.
        offer: what they are asked to hold.
        wanted: how many.
        address: the job's store, for the command in messages.

    Raises:
        ValueError: one has too little memory, and no other is there.
        CommunicatorTimeoutError: too few came within ``offer.patience_s``. The message has the command to type.
    """
    about = _Round(store, offer)
    begun = time.monotonic()
    is_told = False
    command = f"`braid serve --rendezvous {address}`"
    chosen: list[Process] = []
    try:
        while True:
            about.look()
            asked = list(about.asked.values())
            willing = [each.process for each in asked if each.answer == ""]
            refusals = [f"{each.process.name} {each.answer}" for each in asked if each.answer]
            silent = [each for each in asked if each.answer is None and time.monotonic() < each.at + _ANSWER_S]
            if len(willing) >= wanted:
                chosen = willing[:wanted]
                return chosen
            if refusals and len(willing) + len(silent) < wanted:
                raise ValueError(f"{offer.title}: the parameter server {refusals[0]}")
            waited_s = time.monotonic() - begun
            if waited_s > offer.patience_s:
                raise CommunicatorTimeoutError(
                    f"{offer.title} waits for {_servers(wanted)}, and {len(willing)} came within "
                    f"{offer.patience_s:g} s; start them with {command}"
                )
            if waited_s > _NOTICE_S and not is_told:
                is_told = True
                tell(f"{offer.title} waits for {_servers(wanted)}; start them with {command}")
            time.sleep(_PAUSE_S)
    finally:
        store.set(f"{offer.folder}/serve/chosen", pack({"ids": [process.id for process in chosen]}))
        if chosen:
            claim(store, RUNNING, offer.pack())


def _servers(count: int) -> str:
    return "1 parameter server" if count == 1 else f"{count} parameter servers"

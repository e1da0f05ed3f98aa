# SPDX-License-Identifier: Apache-2.0
"""How all workers of a strategy wait for each other, by the store; who has left or died is not waited for."""

import contextlib
import json
import time
from collections.abc import Callable, Collection

from braid._errors import CommunicatorError, CommunicatorTimeoutError
from braid._notices import tell
from braid.strategies.hybrid.processes import Process
from braid.strategies.store import Meeting, hearing

_GLANCE_S = 0.5  # how often a worker looks whether the one for which it waits is gone
_AT_ONCE_S = 0.001

Present = Callable[[], Collection[int]]


class AbsentError(CommunicatorTimeoutError):
    """A worker that lives, as far as anyone knows, did not come in time."""


class Everyone:
    """All workers that began, for one of them. All call the methods alike, in the same order."""

    def __init__(self, meeting: Meeting, timeout_s: float, present: Present) -> None:
        """Note how to find them.

        Args:
            meeting: where the workers met.
            timeout_s: how long to wait for another worker.
            present: returns those that have not died, as far as this worker knows.
        """
        self._meeting, self._timeout_s, self._present = meeting, timeout_s, present
        self._meetings = 0
        self.absent: set[int] = set()  # who began, but did not come to the last meeting: it has left, or is gone
        own = Process.own()
        meeting.store.set(_process(meeting.member), json.dumps([own.where, own.number]).encode())

    def take(self, take: Callable[[], None]) -> None:
        """Wait until all have come, call `take`, and wait until all have done so.

        Else one that goes on could change the centre before another one has looked.

        Raises:
            AbsentError: a worker did not come in time.
        """
        try:
            self._meet()
        except CommunicatorError as error:
            if isinstance(error, CommunicatorTimeoutError):
                raise
            # Worker 0 may have had the store, and died. The others go on, as after each death.
            tell(f"workers cannot wait for each other at the end: {error}")
            self._meetings += 1
            take()
            return
        take()
        self.wait()

    def wait(self) -> None:
        """Wait until all have come, who have met already. Raises as take()."""
        try:
            self._meet()
        except CommunicatorError as error:  # the store is gone, and so its process has ended
            if isinstance(error, CommunicatorTimeoutError):
                raise

    def leave(self) -> None:
        """Say that this worker comes no more, after an error. It waits for nobody, and raises nothing."""
        with contextlib.suppress(Exception):
            self._meeting.store.set(_left(self._meeting.member), b"left")

    def _meet(self) -> None:
        meeting, key = self._meeting, f"everyone/{self._meetings}"
        self._meetings += 1
        self.absent = set()
        say(meeting, key)
        told = "come to settle(everyone=True)"
        self.absent = wait_for_others(meeting, key, self._timeout_s, self._present, told)
        # The store may be worker 0's: it stays until the others need none.
        say(meeting, f"{key}/heard")
        if meeting.member == 0:
            wait_for_others(meeting, f"{key}/heard", self._timeout_s, self._present, "leave settle(everyone=True)")


def say(meeting: Meeting, key: str) -> None:
    """Say that this worker has come to `key`.

    Raises:
        CommunicatorError: the store is gone.
    """
    with hearing(meeting.name):
        meeting.store.set(f"{key}/{meeting.member}", b"here")


def wait_for_others(meeting: Meeting, key: str, timeout_s: float, present: Present, call: str) -> set[int]:
    """Wait until each other worker that began has come to `key`, has left, or is gone.

    Not every worker hears of a death: servers do, and who shares a host with the process. They tell the others.

    Args:
        meeting: where the workers met.
        key: what they say().
        timeout_s: how long to wait for each of them.
        present: returns those that have not died, as far as this worker knows.
        call: completes the error: "worker 2 did not".

    Returns:
        Those that have left or are gone, and did not come.

    Raises:
        AbsentError: a worker did not come in time.
        CommunicatorError: the store is gone.
    """
    absent = set()
    for member in range(meeting.workers):
        until = time.monotonic() + timeout_s
        while member != meeting.member and not _has_come(meeting, key, member):
            if member not in present() or _is_dead(meeting, member):
                with hearing(meeting.name):
                    meeting.store.set(_left(member), b"gone")
                break
            if time.monotonic() > until:
                raise AbsentError(f"worker {member} did not {call} within {timeout_s:g} s", member)
        if member != meeting.member and not _has(meeting, f"{key}/{member}", _AT_ONCE_S):
            absent.add(member)
    return absent


def _left(member: int) -> str:
    return f"left/{member}"


def _process(member: int) -> str:
    return f"process/{member}"


def _is_dead(meeting: Meeting, member: int) -> bool:
    try:
        with hearing(meeting.name):
            where, number = json.loads(meeting.store.get(_process(member), _AT_ONCE_S))
    except TimeoutError:
        return False
    return Process(where, number).is_dead()


def _has_come(meeting: Meeting, key: str, member: int) -> bool:
    return _has(meeting, f"{key}/{member}", _GLANCE_S) or _has(meeting, _left(member), _AT_ONCE_S)


def _has(meeting: Meeting, key: str, timeout_s: float) -> bool:
    try:
        with hearing(meeting.name):
            meeting.store.get(key, timeout_s)
    except TimeoutError:
        return False
    return True

# SPDX-License-Identifier: Apache-2.0
"""The parameter services of this process: what ``braid.stats()`` tells of them, and their end before Python's."""

import atexit
import contextlib
import os
import weakref
from typing import Any, Protocol

from braid import _threads  # noqa: F401 - first, so that at exit its threads end after the services here


class Service(Protocol):
    """A member of a parameter service.

    Attributes:
        name: tells services apart.
        member: the number of this member.
        workers: how many workers began.
    """

    name: str
    member: int
    workers: int

    def stats(self) -> dict[str, Any]:
        """Return the counters of this member."""

    def abandon(self) -> None:
        """Leave at once, without waiting for others."""


_open: "weakref.WeakSet[Any]" = weakref.WeakSet()


def register(service: Service) -> None:
    """Note a service that has begun."""
    _open.add(service)


def forget(service: Service) -> None:
    """Note that a service is closed."""
    _open.discard(service)


def rows() -> list[dict[str, Any]]:
    """Return one dict per open service: the keys of a group in ``braid.stats()``, and ``parameters``."""
    return [
        {
            "group": service.name,
            "rank": service.member,
            "ranks": service.workers,
            "operations": [],
            "waiting": [],
            "notices": 0,
            "longest_wait_s": 0.0,
            "parameters": service.stats(),
        }
        for service in sorted(_open, key=lambda service: str(service.name))
    ]


@atexit.register
def _abandon_all() -> None:
    # Their threads use Python's store, so they must end before Python does.
    for service in list(_open):
        with contextlib.suppress(Exception):  # nobody is left to do something about it
            service.abandon()


os.register_at_fork(after_in_child=_open.clear)  # services, and what they have to say, are the parent's

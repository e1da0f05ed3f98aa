# SPDX-License-Identifier: Apache-2.0
"""All workers of a strategy compare their settings before they connect, so that all of them hear of a difference.

Each worker compares its settings with those of worker 0, and tells worker 0. Worker 0 tells all the verdict.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Generic, TypeVar

from braid._array.servers.asking import engage
from braid._array.servers.placement import Placement, placement_of
from braid._array.servers.terms import Offer, Vector
from braid._array.servers.terms import pack as _pack
from braid._array.servers.terms import unpack as _unpack
from braid._errors import CommunicatorError, CommunicatorTimeoutError
from braid.strategies.store import Meeting, hearing

_GRACE_S = 5.0  # worker 0 says who is missing: the others wait for that a little longer
_ONE_FOR_ALL = "said/0"
_EQUAL = "equal"

_T = TypeVar("_T")


@dataclass(frozen=True)
class Agreement(Generic[_T]):
    """What all members have agreed on: the meeting with their numbers, the servers; and what each has prepared."""

    meeting: Meeting
    servers: list[int]
    prepared: _T


Vectors = Callable[[_T], Sequence[Vector]]
_NO_VECTORS: Sequence[Vector] = ()


def agree(
    meeting: Meeting,
    servers: Iterable[int | str] | str | None,
    prepare: Callable[[], tuple[list[str], _T]],
    timeout_s: float,
    vectors: Vectors[_T] | None = None,
) -> Agreement[_T]:
    """Prepare a strategy on each worker, and check that all workers have the same settings.

    Args:
        meeting: where the workers meet.
        servers: the members that are servers, see placement_of().
        prepare: returns settings, one line each, and anything. What it raises is told to the other workers.
        timeout_s: how long to wait for the others.
        vectors: what servers without a rank are asked to hold. None: the strategy does not use them.

    Raises:
        ValueError: settings differ, or another worker could not prepare, or a server without a rank has too little
            memory. The message says which worker or server, and what.
        CommunicatorTimeoutError: a worker or a server without a rank did not come; the message names it.
    """
    try:
        lines, prepared = prepare()
        if servers is None and vectors is None:
            servers = "ranks"
        placement = placement_of(servers, meeting.workers) if meeting.workers else Placement(())
        if placement.alone and (vectors is None or meeting.job is None):
            raise ValueError(f"servers={servers!r}: this strategy has no use for processes of `braid serve`")
    except Exception as error:
        if meeting.workers:
            _tell_of_failure(meeting, str(error))
        raise
    if not meeting.workers:
        said = _said_by_first(meeting, timeout_s)
        meeting = meeting.after(said["workers"])
        if difference := _difference(meeting.member, lines, said["lines"][1:]):
            raise ValueError(difference)
        return Agreement(meeting, said["servers"], prepared)
    members = placement.members
    lines = [f"servers {members}", *lines]
    if meeting.member == 0:
        said = {"lines": lines, "workers": meeting.workers, "servers": members}
        meeting.store.set(_ONE_FOR_ALL, _pack(said))
        asked = vectors(prepared) if vectors is not None else _NO_VECTORS
        verdict = _judge(meeting, placement, asked, timeout_s)
        meeting.store.set("verdict", _pack(verdict))
    else:
        # Worker 0 waits for the opinions of all, and then for processes that serve.
        verdict = _hear(meeting, lines, timeout_s, answer_s=timeout_s * (2 if placement.alone else 1))
    raise_if_bad(verdict)
    return Agreement(meeting, members, prepared)


def _tell_of_failure(meeting: Meeting, why: str) -> None:
    why = f"worker {meeting.member} cannot begin: {why}"
    if meeting.member == 0:
        meeting.store.set("verdict", _pack({"why": why}))
        meeting.store.set(_ONE_FOR_ALL, _pack({"why": why}))
    else:
        meeting.store.set(f"opinion/{meeting.member}", why.encode())


def _said_by_first(meeting: Meeting, timeout_s: float) -> dict[str, Any]:
    said = _heard(meeting, _ONE_FOR_ALL, timeout_s, f"did not come within {timeout_s:g} s")
    if said.get("why"):
        raise ValueError(said["why"])
    return said


def _judge(meeting: Meeting, placement: Placement, vectors: Sequence[Vector], timeout_s: float) -> dict[str, Any]:
    deadline = time.monotonic() + timeout_s
    for member in range(1, meeting.workers):
        try:
            key = f"opinion/{member}"
            said = meeting.store.get(key, max(0.0, deadline - time.monotonic())).decode()
        except TimeoutError:
            why = f"strategy {meeting.name!r}: worker {member} did not come within {timeout_s:g} s"
            why += ": make the strategy on all ranks"
            return {"why": why, "missing": member, "is_late": True}
        if said != _EQUAL:
            return {"why": said}
    if not placement.alone:
        return {"why": ""}
    offer = offer_of(meeting, "", meeting.workers, len(placement.members), vectors, timeout_s)
    return take_servers(meeting, offer, placement.alone)


def take_servers(meeting: Meeting, offer: Offer, wanted: int) -> dict[str, Any]:
    """Take processes of ``braid serve`` on worker 0, and return the verdict for all: see raise_if_bad()."""
    assert meeting.job is not None
    try:
        engage(meeting.job.store, offer, wanted, meeting.job.address)
    except CommunicatorTimeoutError as error:
        return {"why": str(error), "is_late": True}
    except Exception as error:
        return {"why": str(error)}
    return {"why": ""}


def offer_of(
    meeting: Meeting, folder: str, workers: int, servers: int, vectors: Sequence[Vector], timeout_s: float
) -> Offer:
    """Return what servers without a rank are asked to do.

    Args:
        meeting: of all workers.
        folder: where in it the workers of the service meet; "" if these are the same.
        workers: of the service.
        servers: all that hold shards.
        vectors: what they hold.
        timeout_s: how long to wait for servers.
    """
    assert meeting.job is not None
    place = f"{meeting.job.folder}/{folder}".rstrip("/")
    return Offer(
        token=place,
        folder=place,
        name=f"{meeting.name}/{folder}".rstrip("/"),
        workers=workers,
        servers=servers,
        vectors=tuple(vector for vector in vectors if vector.elements),
        patience_s=timeout_s,
    )


def raise_if_bad(verdict: dict[str, Any]) -> None:
    """Raise what worker 0 says to all: CommunicatorTimeoutError or ValueError; nothing if all is well."""
    if verdict.get("is_late"):
        raise CommunicatorTimeoutError(verdict["why"], verdict.get("missing"))
    if verdict["why"]:
        raise ValueError(verdict["why"])


def _hear(meeting: Meeting, lines: list[str], timeout_s: float, answer_s: float) -> dict[str, Any]:
    difference = _difference(meeting.member, lines, _said_by_first(meeting, timeout_s)["lines"])
    meeting.store.set(f"opinion/{meeting.member}", (difference or _EQUAL).encode())
    return _heard(meeting, "verdict", answer_s + _GRACE_S, f"did not answer within {answer_s:g} s")


def _heard(meeting: Meeting, key: str, timeout_s: float, failure: str) -> dict[str, Any]:
    """Return what worker 0 says at a key."""
    try:
        with hearing(meeting.name):
            return _unpack(meeting.store.get(key, timeout_s))
    except CommunicatorError:
        raise
    except TimeoutError:
        raise CommunicatorTimeoutError(f"strategy {meeting.name!r}: worker 0 {failure}", 0) from None


def _difference(member: int, mine: list[str], first: list[str]) -> str:
    for ours, theirs in zip_longest(mine, first, fillvalue="nothing more"):
        if ours != theirs:
            return f"worker {member} has {ours!r}, but worker 0 has {theirs!r}: all must have the same strategy"
    return ""

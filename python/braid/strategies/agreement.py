# SPDX-License-Identifier: Apache-2.0
"""All workers of a strategy compare their settings before they connect, so that all of them hear of a difference.

Each worker compares its settings with those of worker 0, and tells worker 0. Worker 0 tells all the verdict.
"""

import json
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Generic, TypeVar

from braid._errors import CommunicatorTimeoutError
from braid.strategies.store import Meeting

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


def agree(
    meeting: Meeting, servers: list[int] | None, prepare: Callable[[], tuple[list[str], _T]], timeout_s: float
) -> Agreement[_T]:
    """Prepare a strategy on each worker, and check that all workers have the same settings.

    Args:
        meeting: where the workers meet.
        servers: the members that are servers. None: all workers of the beginning.
        prepare: returns settings, one line each, and anything. What it raises is told to the other workers.
        timeout_s: how long to wait for the others.

    Raises:
        ValueError: settings differ, or another worker could not prepare. The message says which worker, and what.
        CommunicatorTimeoutError: a worker did not come; the message names it.
    """
    try:
        lines, prepared = prepare()
        if meeting.workers:
            servers = _checked_servers(servers, meeting.workers)
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
    assert servers is not None
    lines = [f"servers {servers}", *lines]
    if meeting.member == 0:
        said = {"lines": lines, "workers": meeting.workers, "servers": servers}
        meeting.store.set(_ONE_FOR_ALL, _pack(said))
    verdict = _judge(meeting, timeout_s) if meeting.member == 0 else _hear(meeting, lines, timeout_s)
    if verdict.get("missing") is not None:
        raise CommunicatorTimeoutError(verdict["why"], verdict["missing"])
    if verdict["why"]:
        raise ValueError(verdict["why"])
    return Agreement(meeting, servers, prepared)


def _pack(value: object) -> bytes:
    return zlib.compress(json.dumps(value).encode())


def _unpack(value: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zlib.decompress(value))
    return found


def _tell_of_failure(meeting: Meeting, why: str) -> None:
    why = f"worker {meeting.member} cannot begin: {why}"
    if meeting.member == 0:
        meeting.store.set("verdict", _pack({"why": why}))
        meeting.store.set(_ONE_FOR_ALL, _pack({"why": why}))
    else:
        meeting.store.set(f"opinion/{meeting.member}", why.encode())


def _said_by_first(meeting: Meeting, timeout_s: float) -> dict[str, Any]:
    try:
        said = _unpack(meeting.store.get(_ONE_FOR_ALL, timeout_s))
    except TimeoutError:
        text = f"strategy {meeting.name!r}: worker 0 did not come within {timeout_s:g} s"
        raise CommunicatorTimeoutError(text, 0) from None
    if said.get("why"):
        raise ValueError(said["why"])
    return said


def _judge(meeting: Meeting, timeout_s: float) -> dict[str, Any]:
    deadline = time.monotonic() + timeout_s
    verdict: dict[str, Any] = {"why": ""}
    for member in range(1, meeting.workers):
        try:
            key = f"opinion/{member}"
            said = meeting.store.get(key, max(0.0, deadline - time.monotonic())).decode()
            verdict = {"why": "" if said == _EQUAL else said}
        except TimeoutError:
            why = f"strategy {meeting.name!r}: worker {member} did not come within {timeout_s:g} s"
            verdict = {"why": why, "missing": member}
        if verdict["why"]:
            break
    meeting.store.set("verdict", _pack(verdict))
    return verdict


def _hear(meeting: Meeting, lines: list[str], timeout_s: float) -> dict[str, Any]:
    difference = _difference(meeting.member, lines, _said_by_first(meeting, timeout_s)["lines"])
    meeting.store.set(f"opinion/{meeting.member}", (difference or _EQUAL).encode())
    try:
        return _unpack(meeting.store.get("verdict", timeout_s + _GRACE_S))
    except TimeoutError:
        text = f"strategy {meeting.name!r}: worker 0 did not answer within {timeout_s:g} s"
        raise CommunicatorTimeoutError(text, 0) from None


def _difference(member: int, mine: list[str], first: list[str]) -> str:
    for ours, theirs in zip_longest(mine, first, fillvalue="nothing more"):
        if ours != theirs:
            return f"worker {member} has {ours!r}, but worker 0 has {theirs!r}: all must have the same strategy"
    return ""


def _checked_servers(servers: list[int] | None, workers: int) -> list[int]:
    if servers is None:
        return list(range(workers))
    servers = sorted(servers)
    if not servers or len(set(servers)) < len(servers) or not 0 <= servers[0] <= servers[-1] < workers:
        raise ValueError(f"servers={servers}: give one or more different ranks from 0 to {workers - 1}")
    return servers

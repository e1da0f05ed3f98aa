# SPDX-License-Identifier: Apache-2.0
"""Workers without torch and their parameter servers: worker 0 takes the servers, and all hear whether they came.

Keys of an earlier job may lie in a store, such as a folder. So each worker draws a word that nobody has used, and
worker 0 answers that word with a folder for this job's keys:

    braid/parameters/serve/<name>/here/<worker>  the worker's word
    braid/parameters/serve/<name>/seen/<word>    the folder, from worker 0
    braid/parameters/serve/<name>/newest         the folder, for late workers
    <folder>/said, opinion/<worker>, verdict     settings of worker 0; how others' differ; whether to begin
    <folder>/heard/<worker>, connected/<worker>  this worker knows the verdict; it needs the store no more
"""

import contextlib
import secrets
import time
from collections.abc import Iterable, Iterator
from typing import Any

from braid._array.numbers import whole
from braid._array.rendezvous import Meeting
from braid._array.rendezvous.stores import Below, KeyValueStore
from braid._array.servers.asking import engage
from braid._array.servers.placement import FIRST_ALONE, placement_of
from braid._array.servers.terms import Offer, Vector, glance, pack, unpack
from braid._errors import CommunicatorTimeoutError

_EQUAL = "equal"
_PART = "values"
_PAUSE_S = 0.01
_CONNECTING_S = 20.0
_GRACE_S = 5.0  # worker 0 says who is missing: the others wait for that a little longer


def members_of(servers: Iterable[int | str] | str | None, workers: int) -> list[int]:
    """Return the members that hold shards, in their order; see placement_of().

    Raises:
        TypeError, ValueError: there is no such place.
    """
    if servers is not None and not isinstance(servers, str):
        servers = list(servers)
        if not any(isinstance(item, str) for item in servers):
            return [whole(item, "a server") for item in servers]  # shares= follows this order
    return placement_of(servers, workers).members


@contextlib.contextmanager
def meet_servers(
    meeting: Meeting, name: str, member: int, common: dict[str, Any], *, is_late: bool
) -> Iterator[tuple[KeyValueStore, str]]:
    """Give the store in which the members of a service find each other, and its name there.

    The caller connects inside the context. Where no server is a process of ``braid serve``, the store is the
    meeting's own.

    Args:
        meeting: of the workers.
        name: of the service.
        member: the number of this worker.
        common: settings that all members must have, as the core takes them.
        is_late: whether the others have begun.

    Raises:
        ValueError: settings differ, there is no such rule, a server has too little memory, or servers cannot come
            to this meeting.
        CommunicatorTimeoutError: a worker or a server did not come; the message names it.
    """
    if not any(server >= FIRST_ALONE for server in common["servers"]):
        yield meeting.store, name
        return
    if not meeting.address:
        raise ValueError(
            "servers=: processes of `braid serve` find workers that meet at 'tcp://host:port', 'env://', "
            "'file:///folder' or a TCPStore of torch, and nowhere else"
        )
    _vector(common).needs(meeting.size, len(common["servers"]))  # raises here what servers could not make sense of
    hall = Below(meeting.store, f"braid/parameters/serve/{name}")
    title, timeout_s = f"parameter service {name!r}", common["timeout_s"]
    name_there = f"{name}/{_PART}"
    if is_late:
        yield Below(meeting.store, _folder_of_running(hall, title, timeout_s)), name_there
        return
    if member == 0:
        store = _lead(meeting, hall, name, title, common)
    else:
        store = _follow(meeting, hall, title, member, common)
    try:
        yield store, name_there
    finally:
        if member != 0:
            store.set(f"connected/{member}", b"")
    if member == 0:
        _keep_store(store, "connected", range(1, meeting.size), timeout_s)


def _lead(meeting: Meeting, hall: KeyValueStore, name: str, title: str, common: dict[str, Any]) -> KeyValueStore:
    folder = f"braid/parameters/serve/{name}/{secrets.token_hex(8)}"
    store = Below(meeting.store, folder)
    store.set("said", pack(_lines(common)))
    hall.set("newest", folder.encode())
    verdict = _opinions(hall, store, folder, title, meeting.size, common["timeout_s"])
    if not verdict["why"]:
        offer = Offer(
            token=folder,
            folder=folder,
            name=name,
            workers=meeting.size,
            servers=len(common["servers"]),
            vectors=(_vector(common),),
            patience_s=common["timeout_s"],
            kind="parameter service",
        )
        alone = sum(server >= FIRST_ALONE for server in common["servers"])
        try:
            engage(meeting.store, offer, alone, meeting.address)
            store.set(f"serve/{_PART}", pack(common))
        except Exception as error:
            verdict = {"why": str(error), "is_late": isinstance(error, CommunicatorTimeoutError)}
    store.set("verdict", pack(verdict))
    if verdict["why"]:
        _keep_store(store, "heard", set(range(1, meeting.size)) - {verdict.get("missing")}, common["timeout_s"])
    _raise_if_bad(verdict)
    return store


def _keep_store(store: KeyValueStore, done: str, workers: Iterable[int], timeout_s: float) -> None:
    """Wait until workers have said that they need the store no more: worker 0 may end it when it leaves."""
    deadline = time.monotonic() + min(timeout_s, _CONNECTING_S)
    for worker in workers:
        with contextlib.suppress(TimeoutError):  # a worker that has died stops nobody
            store.get(f"{done}/{worker}", max(0.0, deadline - time.monotonic()))


def _opinions(
    hall: KeyValueStore, store: KeyValueStore, folder: str, title: str, workers: int, timeout_s: float
) -> dict[str, Any]:
    """Answer the other workers, and return the verdict on what they say."""
    deadline = time.monotonic() + timeout_s
    words: dict[int, bytes | None] = dict.fromkeys(range(1, workers))
    while words:
        for worker, known in list(words.items()):
            word = glance(hall, f"here/{worker}")
            if word is not None and word != known:  # it may be an earlier job's: then another one follows
                words[worker] = word
                hall.set(f"seen/{word.decode()}", folder.encode())
            opinion = glance(store, f"opinion/{worker}")
            if opinion is None:
                continue
            if opinion.decode() != _EQUAL:
                return {"why": opinion.decode()}
            del words[worker]
        if words and time.monotonic() > deadline:
            missing = min(words)
            why = (
                f"{title}: worker {missing} did not come within {timeout_s:g} s, or has no processes of "
                "`braid serve` in servers=: give all workers the same"
            )
            return {"why": why, "is_late": True, "missing": missing}
        time.sleep(_PAUSE_S)
    return {"why": ""}


def _follow(
    meeting: Meeting, hall: KeyValueStore, title: str, member: int, common: dict[str, Any]
) -> KeyValueStore:
    timeout_s = common["timeout_s"]
    word = secrets.token_hex(8)
    hall.set(f"here/{member}", word.encode())
    try:
        store = Below(meeting.store, hall.get(f"seen/{word}", timeout_s).decode())
        said = unpack(store.get("said", timeout_s))
    except TimeoutError:
        text = f"{title}: worker 0 did not come within {timeout_s:g} s, or has other servers="
        raise CommunicatorTimeoutError(text, 0) from None
    store.set(f"opinion/{member}", _difference(member, _lines(common), said).encode())
    try:
        verdict = unpack(store.get("verdict", 2 * timeout_s + _GRACE_S))
    except TimeoutError:
        text = f"{title}: worker 0 did not answer within {2 * timeout_s:g} s"
        raise CommunicatorTimeoutError(text, 0) from None
    store.set(f"heard/{member}", b"")
    _raise_if_bad(verdict)
    return store


def _folder_of_running(hall: KeyValueStore, title: str, timeout_s: float) -> str:
    try:
        return hall.get("newest", timeout_s).decode()
    except TimeoutError:
        raise CommunicatorTimeoutError(f"{title} has not begun here: there is nothing to join", 0) from None


def _vector(common: dict[str, Any]) -> Vector:
    """Return what a server is asked to hold, so that it counts the largest shard."""
    shares, servers, share = common["shares"], common["servers"], 0.0
    if shares is not None and len(shares) == len(servers) and sum(shares) > 0:
        largest = max(share for share, server in zip(shares, servers, strict=True) if server >= FIRST_ALONE)
        share = largest / sum(shares)
    same = ("elements", "rule", "mode", "push_codec", "pull_codec", "replicas")
    return Vector(_PART, share=share, **{name: common[name] for name in same})


def _lines(common: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in common.items() if name != "timeout_s"}


def _difference(member: int, mine: dict[str, str], first: dict[str, str]) -> str:
    for name, ours in mine.items():
        if ours != first.get(name):
            return (
                f"worker {member} has {name} {ours}, but worker 0 has {name} {first.get(name)}: "
                "all must have the same"
            )
    return _EQUAL


def _raise_if_bad(verdict: dict[str, Any]) -> None:
    if verdict.get("is_late"):
        raise CommunicatorTimeoutError(verdict["why"], verdict.get("missing"))
    if verdict["why"]:
        raise ValueError(verdict["why"])

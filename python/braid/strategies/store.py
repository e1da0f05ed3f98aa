# SPDX-License-Identifier: Apache-2.0
"""Where the members of a strategy meet: a process group's store, or a job's store for those that join late."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

from braid import _own_groups
from braid._advice.network import Network
from braid._array.rendezvous.stores import Below, KeyValueStore, UserStore
from braid._attempts import word_of_attempt
from braid._errors import CommunicatorError, CommunicatorTimeoutError
from braid.strategies.doors import Doors, is_shut

_FOLDER = "braid/strategies"
_LONGEST_CAUSE = 200


@dataclass(frozen=True)
class Job:
    """A job's store without prefixes, as parameter servers see it.

    Attributes:
        store: the store.
        folder: where the keys of a strategy lie in it.
        address: what others give to find it: MASTER_ADDR:MASTER_PORT.
    """

    store: KeyValueStore
    folder: str
    address: str


@dataclass(frozen=True)
class Meeting:
    """A store for the keys of one strategy, and this process's place in it.

    Attributes:
        store: has set(key, bytes) and get(key, timeout_s).
        member: the number of this process, from 0. It is the rank of those that begin together.
        workers: how many workers begin together; 0 if this process joins later, and does not know it yet.
        name: tells strategies apart that exist at the same time.
        job: where parameter servers without a rank are found; None if nobody looks there.
        rate: bytes per second of this host's network card, where a process group on braid has measured it.
        who: this process as others' messages name it.
    """

    store: KeyValueStore
    member: int
    workers: int
    name: str
    job: Job | None = None
    rate: float | None = None
    who: str = ""

    @cached_property
    def doors(self) -> Doors:
        """What asks the store for late members."""
        return Doors(self.store, self.member, self.workers)

    @property
    def is_late(self) -> bool:
        """Whether others have begun without this member."""
        return self.member >= self.workers

    def of_some(self, folder: str, member: int, workers: int, who: str) -> "Meeting":
        """Return a meeting of `workers` of these members, of which this one is number `member`."""
        return Meeting(
            Below(self.store, folder), member, workers, f"{self.name}/{folder}", rate=self.rate, who=who
        )

    def after(self, workers: int) -> "Meeting":
        """Return the meeting of a late member, whose number comes after those of `workers`."""
        member = workers + self.member
        return replace(self, member=member, workers=workers, who=f"worker {member}, which came late,")


def meet(process_group: Any, name: str | None, timeout_s: float) -> Meeting:
    """Return the meeting of a process group's ranks; None is the default group.

    Raises:
        RuntimeError: there is no process group.
        ValueError: this rank is not in the group.
        TimeoutError: rank 0 did not come.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(
            "a strategy needs a process group: call torch.distributed.init_process_group() first, with any backend"
        )
    group = process_group or dist.group.WORLD
    member = dist.get_rank(group)
    if member < 0:
        raise ValueError("this rank is not in the process group of the strategy")
    if name is None:
        name = f"parameters.{_own_groups.count(group, 'strategies without a name')}"
    store = c10d._get_default_store()
    # A second strategy of the same name has keys of its own; whoever joins late by that name finds the newest.
    number = _own_groups.count(group, f"strategies named {name}")
    own = Below(UserStore(store), f"{_FOLDER}/{_own_groups.label(group)}/{name}/{number}")
    raw = _without_prefixes(store)
    base = Below(UserStore(raw), _FOLDER)
    # Late members see the store without torch's prefixes. An earlier job may have left keys there, so rank 0 draws
    # a folder that nobody has used.
    try:
        with hearing(name):
            token = word_of_attempt(own, "token", is_first=member == 0, timeout_s=timeout_s)
    except TimeoutError:
        why = f"strategy {name!r}: worker 0 did not come within {timeout_s:g} s: make the strategy on all ranks"
        raise CommunicatorTimeoutError(why, 0) from None
    if member == 0:
        base.set(name, token.encode())
    job = Job(UserStore(raw), f"{_FOLDER}/{token}", _address(raw))
    workers, rate = dist.get_world_size(group), _measured_rate(group, member)
    return Meeting(Below(base, token), member, workers, name, job, rate, f"rank {member}")


def _measured_rate(group: Any, member: int) -> float | None:
    """Return the bytes per second of this host's card, the slower way; None if the group is not on braid."""
    import torch

    try:
        backend = group._get_backend(torch.device("cpu"))
    except RuntimeError:  # a group of accelerators alone
        return None
    backend = getattr(backend, "wrapped_pg", backend)
    if not hasattr(backend, "topology"):
        return None
    network = Network(backend.topology())
    return 1 / max(network.up_s_per_byte(member), network.down_s_per_byte(member))


@contextmanager
def hearing(name: str) -> Iterator[None]:
    """Turn the error of a store of torch that is gone into CommunicatorError: worker 0 may have had the store."""
    try:
        yield
    except (CommunicatorError, TimeoutError):
        raise
    except RuntimeError as error:
        why = " ".join(str(error).split())[:_LONGEST_CAUSE]
        text = f"strategy {name!r} cannot begin: the job's store is gone, and so may worker 0 be ({why})"
        raise CommunicatorError(text, 0) from error


def join(where: Any, name: str | None, timeout_s: float) -> Meeting:
    """Return the meeting of a strategy that has begun, for a new member.

    Args:
        where: ``"host:port"`` of the job's store (MASTER_ADDR and MASTER_PORT), or a store of torch.
        name: the strategy's name; by default that of the first one without a name.
        timeout_s: how long to wait until the strategy begins.

    Returns:
        A meeting with the number of earlier late members as `member`, see Meeting.after().

    Raises:
        CommunicatorError: there is no such store, or worker 0 of the strategy has left.
        ValueError: `where` has another form.
        TimeoutError: no strategy of that name has begun.
    """
    raw = _job_store(where, timeout_s) if isinstance(where, str) else _without_prefixes(where)
    name = name or "parameters.0"
    base = Below(UserStore(raw), _FOLDER)
    try:
        token = base.get(name, timeout_s).decode()
    except TimeoutError:
        raise TimeoutError(f"no strategy named {name!r} has begun here: there is nothing to join") from None
    store = Below(base, token)
    if is_shut(store):
        raise CommunicatorError(f"worker 0 of strategy {name!r} has left: nobody can join any more", 0)
    late = raw.add(f"{_FOLDER}/{token}/late", 1)
    return Meeting(store, late - 1, 0, name)


def _job_store(where: str, timeout_s: float) -> Any:
    from torch.distributed import DistError, TCPStore

    host, _, port = where.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"join={where!r}: give MASTER_ADDR:MASTER_PORT of the job, as 'node0:29500'")
    try:
        return TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=timeout_s))
    except (DistError, RuntimeError) as error:
        raise CommunicatorError(f"there is no job's store at {where} ({error})".splitlines()[0]) from error


def _without_prefixes(store: Any) -> Any:
    from torch.distributed import PrefixStore

    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store


def _address(raw: Any) -> str:
    host, port = getattr(raw, "host", None), getattr(raw, "port", None)
    return f"{host}:{port}" if host and port else "MASTER_ADDR:MASTER_PORT"

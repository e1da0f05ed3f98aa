# SPDX-License-Identifier: Apache-2.0
"""How ranks find each other: turns the user's argument into a key-value store that all ranks reach."""

import os
import socket
import time
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from braid._array.rendezvous.mpi import meet_through_mpi
from braid._array.rendezvous.stores import FolderStore, KeyValueStore, Store, UserStore
from braid._array.rendezvous.tcp import TcpStore
from braid._errors import CommunicatorError
from braid._notices import tell

__all__ = ["KeyValueStore", "Meeting", "Store", "join_store", "meet"]

_PAUSE_S = 0.1
_TOLD_AFTER_S = 5.0
LAUNCHER = "braid run, torchrun and other launchers set it"
_WAYS = "'tcp://host:port', 'env://', 'file:///folder', a store with set, get and wait, or an mpi4py communicator"


@dataclass
class Meeting:
    """The store where ranks meet, with this process's rank and the number of ranks.

    `reach` is a host that all ranks reach, "" if none is known. `place` is equal for meetings that use the same
    keys. It is None if nobody else uses the keys. `address` is what join_store() takes, "" if others cannot come.
    """

    store: KeyValueStore
    rank: int
    size: int
    reach: str = ""
    place: Hashable = None
    address: str = ""


def meet(
    where: Any, rank: int | None, size: int | None, timeout_s: float | None, *, may_listen: bool = True
) -> Meeting:
    """Return the meeting for the first argument of ``braid.Communicator``.

    `may_listen`: rank 0 opens the store where nobody else has; False for those who join it.

    Raises:
        TypeError, ValueError: the argument names no place to meet, or rank or size are missing or make no sense.
        CommunicatorError: this rank should listen but cannot, or the folder cannot be made or used.
    """
    if isinstance(where, str):
        return _meet_at(where, _checked(*_place(rank, size)), timeout_s, may_listen)
    if all(callable(getattr(where, name, None)) for name in ("set", "get", "wait")):
        own, ranks = _checked(*_place(rank, size))
        return Meeting(UserStore(where), own, ranks, place=id(where), address=_address_of(where))
    if all(callable(getattr(where, name, None)) for name in ("Get_rank", "Get_size", "bcast", "allgather")):
        if rank is not None or size is not None:
            raise ValueError("an mpi4py communicator knows its rank and size; leave out rank= and size=")
        store, host = meet_through_mpi(where, timeout_s)
        return Meeting(store, where.Get_rank(), where.Get_size(), host)
    raise TypeError(f"ranks cannot meet at a {type(where).__name__}; give {_WAYS}")


def join_store(where: str, timeout_s: float, away_s: float | None = None) -> tuple[KeyValueStore, str]:
    """Return a job's store, and a host that the job's ranks reach. This process is not a rank of the job.

    Args:
        where: ``"tcp://host:port"`` or ``"file:///folder"``, as ``braid.Communicator`` takes them. Or
            ``"host:port"`` of torch's own store: MASTER_ADDR and MASTER_PORT of the job.
        timeout_s: how long to try to reach the store.
        away_s: how long a store of braid may be away later, between two services of rank 0; by default as long.

    Raises:
        ValueError: `where` has none of these forms.
        CommunicatorError: there is no such store.
    """
    parts = urlsplit(where)
    if parts.scheme == "file":
        return FolderStore(_folder(where)), ""
    if parts.scheme == "tcp":
        host, port = _host_and_port(where)
        _await_listener(host, port, timeout_s)
        limit_s = timeout_s if away_s is None else away_s
        return TcpStore.at(host, port, listen=False, timeout_s=limit_s), host
    if "://" in where:
        raise ValueError(f"{where!r} is no job's store; give 'host:port', 'tcp://host:port' or 'file:///folder'")
    try:
        host, port = _host_and_port(f"tcp://{where}")
    except ValueError as error:
        raise ValueError(str(error).replace("tcp://", "")) from None
    _await_listener(host, port, timeout_s)
    return _store_of_torch(host, port, timeout_s), host


def _await_listener(host: str, port: int, timeout_s: float) -> None:
    # torch's own wait cannot be interrupted, and prints many lines if it fails.
    begun = time.monotonic()
    deadline, told = begun + timeout_s, False
    while True:
        try:
            socket.create_connection((host, port), max(0.01, deadline - time.monotonic())).close()
            return
        except OSError as error:
            reason = error.strerror or str(error)
            if time.monotonic() + _PAUSE_S >= deadline:
                raise CommunicatorError(f"nobody listens there after {timeout_s:g} s ({reason})") from error
        if not told and time.monotonic() - begun > _TOLD_AFTER_S:
            told = True
            tell(f"waiting for the job's store at {host}:{port} ({reason}), for {timeout_s:g} s in all")
        time.sleep(_PAUSE_S)


def _store_of_torch(host: str, port: int, timeout_s: float) -> KeyValueStore:
    from torch.distributed import DistError, TCPStore

    try:
        return UserStore(TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout_s)))
    except (DistError, RuntimeError) as error:
        raise CommunicatorError(f"what listens there is no store of torch ({error})".splitlines()[0]) from error


def _folder(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/"):
        raise ValueError(f"{url!r}: expected three slashes and an absolute path, as in 'file:///scratch/meet'")
    return parts.path


def _meet_at(url: str, place: tuple[int, int], timeout_s: float | None, may_listen: bool) -> Meeting:
    rank, size = place
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Meeting(FolderStore(_folder(url)), rank, size, place=url, address=url)
    if parts.scheme == "tcp":
        host, port = _host_and_port(url)
    elif url == "env://":
        host, port = _variable("MASTER_ADDR"), _port(_variable("MASTER_PORT"), "MASTER_PORT")
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            return Meeting(_store_of_torchrun(host, port), rank, size, host, url, f"{host}:{port}")
    else:
        raise ValueError(f"ranks cannot meet at {url!r}; give {_WAYS}")
    store = TcpStore.at(host, port, listen=may_listen and rank == 0, timeout_s=timeout_s)
    return Meeting(store, rank, size, host, url, f"tcp://{host}:{port}")


def _address_of(store: Any) -> str:
    # Only a store of torch without a prefix: others would not see the same keys.
    host, port = getattr(store, "host", None), getattr(store, "port", None)
    return f"{host}:{port}" if host and port else ""


def _store_of_torchrun(host: str, port: int) -> KeyValueStore:
    # torchrun itself listens there, with torch's own protocol.
    from torch.distributed import TCPStore

    return UserStore(TCPStore(host, port, is_master=False))


def _host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{url!r}: {error}") from None
    if not host or port is None or parts.path.strip("/") or parts.query:
        raise ValueError(f"{url!r}: expected a host and a port, as in 'tcp://node0:29500'")
    return host, _port(str(port), url)


def _port(text: str, what: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ValueError(f"{what}: {text} is no port; choose one from 1 to 65535 that all ranks know")
    return int(text)


def _variable(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise ValueError(f"'env://' needs the environment variable {name}: {LAUNCHER}")
    return value


def _place(rank: int | None, size: int | None) -> tuple[int, int]:
    return _given_or_variable(rank, "rank", "RANK"), _given_or_variable(size, "size", "WORLD_SIZE")


def _given_or_variable(value: int | None, argument: str, variable: str) -> int:
    if value is not None:
        return int(value)
    text = os.environ.get(variable, "")
    if not text:
        raise ValueError(f"the {argument} is not known: give {argument}=, or set {variable}: {LAUNCHER}")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{variable}={text} is no whole number") from None


def _checked(rank: int, size: int) -> tuple[int, int]:
    if size < 1 or not 0 <= rank < size:
        raise ValueError(f"rank {rank} does not exist in a group of {size}; ranks count from 0")
    return rank, size

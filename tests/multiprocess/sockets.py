# SPDX-License-Identifier: Apache-2.0
"""Cuts TCP connections of this process, as a link that fails does."""

import contextlib
import os
import socket
from pathlib import Path


def cut_connections_to(pid: int) -> int:
    """Shut all TCP connections of this process whose other end that process has; return how many these were."""
    theirs = {local for local, _ in _connections(pid)}
    cut = 0
    for fd, (_, remote) in _sockets_of(os.getpid(), _table()).items():
        if remote not in theirs:
            continue
        cut += 1
        # Once one of them is cut, braid may close the others.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:
            connection.shutdown(socket.SHUT_RDWR)
    assert cut > 0, f"there is no connection to process {pid}"
    return cut


def _table() -> dict[str, tuple[str, str]]:
    """Return the two ends of each connection of this host, by the number of its socket."""
    found = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            found[fields[9]] = (fields[1], fields[2])
    return found


def _sockets_of(pid: int, table: dict[str, tuple[str, str]]) -> dict[int, tuple[str, str]]:
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:
            continue
        number = target.removeprefix("socket:[").removesuffix("]")
        if target.startswith("socket:[") and number in table:
            found[int(entry.name)] = table[number]
    return found


def _connections(pid: int) -> list[tuple[str, str]]:
    return list(_sockets_of(pid, _table()).values())

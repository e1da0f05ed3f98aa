# SPDX-License-Identifier: Apache-2.0
"""Meeting through an mpi4py communicator: rank 0 opens a server and sends its address to the others by MPI."""

import secrets
import socket
from pathlib import Path
from typing import Any

from braid._array.rendezvous.protocol import TOKEN_BYTES
from braid._array.rendezvous.server import Server
from braid._array.rendezvous.tcp import TcpStore
from braid._errors import CommunicatorError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NETWORK = Path("/proc/self/ns/net")
# This address is never routed, and nothing is sent to it. The kernel's route to it shows this host's own address.
_FAR_AWAY = ("192.0.2.1", 9)


def _identity() -> str:
    boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
    network = _NETWORK.stat().st_ino if _NETWORK.exists() else 0
    return f"{socket.gethostname()}/{boot}/{network}"


def _addresses() -> list[str]:
    """Return addresses of this host that other hosts may reach, the likeliest first."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_FAR_AWAY)
            found.append(probe.getsockname()[0])
        except OSError:
            pass  # no route to anywhere
    return [*found, socket.gethostname()]


def meet_through_mpi(communicator: Any, timeout_s: float | None) -> tuple[TcpStore, str]:
    """Return a store that all ranks of the communicator reach, and rank 0's host. Collective."""
    one_host = len(set(communicator.allgather(_identity()))) == 1
    offer: tuple[list[str], int, bytes] | str | None = None
    server = None
    if communicator.Get_rank() == 0:
        token = secrets.token_bytes(TOKEN_BYTES)
        try:
            server = Server("127.0.0.1" if one_host else None, 0, token)
            offer = (["127.0.0.1"] if one_host else _addresses(), server.port, token)
        except OSError as error:
            offer = str(error)  # the other ranks wait for the broadcast in this case, too
    offer = communicator.bcast(offer, root=0)
    if offer is None or isinstance(offer, str):
        raise CommunicatorError(f"rank 0 cannot listen: {offer}", 0)
    hosts, port, token = offer
    reached_at = hosts if server is None else ["127.0.0.1"]
    return TcpStore(reached_at, port, timeout_s=timeout_s, token=token, server=server), hosts[0]

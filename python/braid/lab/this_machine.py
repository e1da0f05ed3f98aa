# SPDX-License-Identifier: Apache-2.0
"""This machine as the host of a job's ranks, without a lab."""

import contextlib
import os
import random
import signal
import socket
import subprocess
from typing import Any

from braid.lab.rank_place import RankPlace
from braid.lab.spec import LabError

_PORTS = range(20_000, 32_000)


class ThisMachine:
    """Starts commands as they are. It takes the place of a lab's host."""

    name = "this machine"

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command. The options are those of subprocess.Popen."""
        return subprocess.Popen(command, **options)

    def signal(self, process: "subprocess.Popen[Any]", number: signal.Signals) -> None:
        """Send a signal to a command, and to what it has started; it must lead a session of its own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def environments_here(
    ranks: int, address: str, port: int, nodes: int = 1, node: int = 0
) -> list[tuple[ThisMachine, dict[str, str]]]:
    """Return this machine and a rank's variables for torch.distributed's env://, for each rank of this node.

    Args:
        ranks: on each node.
        address: where rank 0 is reached.
        port: of the job's store there.
        nodes: of the whole job.
        node: the number of this one.
    """
    here = ThisMachine()
    places = [RankPlace(node * ranks + local, nodes * ranks, local, ranks, node) for local in range(ranks)]
    return [(here, place.variables(address, port)) for place in places]


def free_port() -> int:
    """Return a port of this machine that nobody uses; LabError if there is none.

    None that the kernel gives to those who connect: who tries until somebody listens would meet itself.
    """
    for port in random.sample(_PORTS, len(_PORTS)):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise LabError(f"no port from {_PORTS[0]} to {_PORTS[-1]} is free; give one")

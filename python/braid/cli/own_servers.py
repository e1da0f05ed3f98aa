# SPDX-License-Identifier: Apache-2.0
"""The parameter servers and the aggregators that ``braid run`` starts beside its ranks."""

import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from braid._notices import tell
from braid.cli.errors import CommandError
from braid.lab import free_port

MOST = 64  # of one kind in a job


@dataclass(frozen=True)
class Kind:
    """What is started: option of `braid run`, command and its option for the store, variable that ranks read."""

    name: str
    option: str
    command: tuple[str, ...]
    variable: str


PARAMETER_SERVERS = Kind("a parameter server", "--servers", ("serve", "--rendezvous"), "BRAID_PARAMETER_SERVERS")
AGGREGATORS = Kind("an aggregator", "--aggregators", ("aggregator", "--join"), "BRAID_SERVERS")
# Other nodes, the one with the store among them, may be started later: as long as torchrun waits for them.
_JOIN_TIMEOUT_S = 600
_GRACE_S = 10.0
_ANY_NODE = "127.0.0.1"


def settle_store(options: Namespace, nodes: int, kind: Kind) -> str:
    """Return host:port of the store that the ranks of torchrun will meet at.

    One node alone would choose a port when it starts, which is too late: one is chosen here and put into the
    options.

    Raises:
        CommandError: the nodes meet in a way that leaves it open until they have met.
    """
    is_alone = nodes == 1 and not options.rdzv_endpoint and options.master_port is None
    if options.standalone or (options.rdzv_backend == "static" and is_alone):
        options.standalone, options.rdzv_backend, options.rdzv_endpoint = False, "static", ""
        options.master_addr, options.master_port = _ANY_NODE, free_port()
    if options.rdzv_backend != "static":
        raise CommandError(
            f"{kind.option}: with --rdzv-backend {options.rdzv_backend} it is not known beforehand where ranks "
            "meet; use --master-addr, --master-port and --node-rank"
        )
    return options.rdzv_endpoint or f"{options.master_addr}:{options.master_port or 29500}"


def tell_ranks(count: int, nodes: int, kind: Kind) -> None:
    """Set the variable of the kind to what all nodes start together, unless the user has.

    Raises:
        CommandError: a job cannot have so many.
    """
    if not 0 < count * nodes <= MOST:
        raise CommandError(f"{kind.option}: expected 1 to {MOST} on all nodes together, got {count * nodes}")
    os.environ.setdefault(kind.variable, str(count * nodes))


class OwnServers:
    """Some processes of one kind on this machine; they end with the block, whatever ends it."""

    def __init__(self, count: int, store: str, kind: Kind) -> None:
        """Start them. None of them is in the foreground: Ctrl-C is for the ranks first."""
        command = [sys.executable, "-m", "braid.cli", *kind.command, store]
        command += ["--timeout", str(_JOIN_TIMEOUT_S)]
        # At the end the store goes with the ranks, and torch would tell of it with a stack.
        environment = {"TORCH_CPP_LOG_LEVEL": "ERROR", **os.environ}
        self._kind = kind
        self._servers = [
            subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, env=environment)
            for _ in range(count)
        ]

    def close(self) -> None:
        """End them: asked first, then made to. Of one that ended before, by an error or a signal, it is told."""
        for server in self._servers:
            if code := server.poll():
                how = f"ended with exit code {code}" if code > 0 else f"was killed by {signal.Signals(-code).name}"
                tell(f"{self._kind.name} (process {server.pid}) {how} before the job's end; the ranks went on")
        for server in self._servers:
            server.terminate()
        deadline = time.monotonic() + _GRACE_S
        for server in self._servers:
            try:
                server.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def __enter__(self) -> Self:
        """Return them."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

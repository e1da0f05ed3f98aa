# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a job on the hosts of a lab, as torchrun does on real hosts, but without restarts."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any, Protocol, Self

from braid.lab.lab import CARD, Host, Lab
from braid.lab.rank_place import RankPlace
from braid.lab.spec import LabError

PORT = 29500
# How long ranks may go on after another rank has failed, or after a signal.
_GRACE_S = 10.0
_LOOK_S = 0.02


def environments(
    lab: Lab, ranks_per_host: list[int], round_robin: bool = False
) -> list[tuple[Host, dict[str, str]]]:
    """Return the host of every rank, and its environment variables for torch.distributed's env://.

    Args:
        lab: the lab that has the hosts.
        ranks_per_host: one number per host; 0 leaves a host without ranks.
        round_robin: number the ranks over the hosts in turn, instead of host by host.

    Raises:
        LabError: there is not one number per host, a number is negative, or all are 0.
    """
    if len(ranks_per_host) != len(lab.hosts) or min(ranks_per_host) < 0 or sum(ranks_per_host) < 1:
        raise LabError(f"{ranks_per_host} places no ranks on {len(lab.hosts)} hosts: expected a number for each")
    places = [(local, host) for host, count in enumerate(ranks_per_host) for local in range(count)]
    places.sort(key=lambda place: place if round_robin else (place[1], place[0]))
    first = lab.hosts[places[0][1]]
    return [
        (
            lab.hosts[host],
            {
                **RankPlace(rank, len(places), local, ranks_per_host[host], host).variables(first.address, PORT),
                "GLOO_SOCKET_IFNAME": CARD,
                "BRAID_INTERFACE": CARD,
                "BRAID_LINKS": os.environ.get("BRAID_LINKS", "measure"),  # the next lab may look the same
            },
        )
        for rank, (local, host) in enumerate(places)
    ]


class Starts(Protocol):
    """Where ranks can be started: a host of a lab, or this machine."""

    name: str

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command. The options are those of subprocess.Popen."""

    def signal(self, process: subprocess.Popen[Any], number: signal.Signals) -> None:
        """Send a signal to a command that it has started in a session of its own."""


Place = tuple[Starts, dict[str, str]]  # where a rank runs, and its variables


class Job:
    """One command, started once per rank.

    Attributes:
        ranks: the processes.
        ended: ranks in the order in which poll() found them ended.
    """

    def __init__(
        self, places: Sequence[tuple[Starts, dict[str, str]]], command: list[str], **options: Any
    ) -> None:
        """Start it.

        Args:
            places: as environments() or environments_here() returns them.
            command: the program and its arguments.
            options: those of subprocess.Popen, for every rank. The ranks' variables are added to `env`.
        """
        environment = options.pop("env", None) or dict(os.environ)
        options.setdefault("stdin", subprocess.DEVNULL)
        self.ranks: list[subprocess.Popen[Any]] = []
        self._hosts = [host for host, _ in places]
        self.ended: list[int] = []
        try:
            for host, own in places:
                self.ranks.append(
                    host.start(command, env={**environment, **own}, start_new_session=True, **options)
                )
        except BaseException:
            self.close()
            raise

    def poll(self) -> list[int | None]:
        """Return the exit codes by rank: negative for signals, None for ranks that still run."""
        codes = [rank.poll() for rank in self.ranks]
        self.ended += [rank for rank, code in enumerate(codes) if code is not None and rank not in self.ended]
        return codes

    def wait(self, timeout_s: float | None = None, *, survive: bool = False) -> list[int]:
        """Wait until all ranks have ended, and return their exit codes.

        Ten seconds after a failure it ends all; with `survive` the others go on.

        Raises:
            TimeoutError: ranks still run after `timeout_s`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        failed_at: float | None = None
        while None in (codes := self.poll()):
            now = time.monotonic()
            if deadline is not None and now > deadline:
                silent = ", ".join(str(rank) for rank, code in enumerate(codes) if code is None)
                raise TimeoutError(f"rank {silent} still runs after {timeout_s:g} s")
            if failed_at is None and any(codes) and not survive:
                failed_at = now
            if failed_at is not None and now > failed_at + _GRACE_S:
                self.close()
            time.sleep(_LOOK_S)
        return [code for code in codes if code is not None]

    def exit_code(self, codes: list[int], *, survive: bool = False) -> int:
        """Return the job's: that of the rank that failed first; with `survive` 0 if one did not fail."""
        failed = [] if survive and 0 in codes else self.failures()
        first = codes[failed[0]] if failed else 0
        return first if first >= 0 else 128 - first

    def failures(self) -> list[int]:
        """Return the ranks that failed, the one that ended first first, without those that close() ended."""
        codes = self.poll()
        failed = [rank for rank in self.ended if codes[rank]]
        return [rank for rank in failed if rank == failed[0] or codes[rank] != -signal.SIGTERM]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every rank that runs."""
        for host, rank in zip(self._hosts, self.ranks, strict=False):
            if rank.poll() is None:
                host.signal(rank, number)

    def close(self) -> None:
        """End all ranks: send SIGTERM, and SIGKILL after ten seconds. Idempotent."""
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        for rank in self.ranks:
            with contextlib.suppress(subprocess.TimeoutExpired):
                rank.wait(max(0.0, deadline - time.monotonic()))
        self.signal(signal.SIGKILL)
        for rank in self.ranks:
            rank.wait()

    def __enter__(self) -> Self:
        """Return the job, which ends with the block."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close."""
        self.close()

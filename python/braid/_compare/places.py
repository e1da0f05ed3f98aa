# SPDX-License-Identifier: Apache-2.0
"""Where the ranks of ``braid compare`` run: on this machine, or on the hosts of a lab."""

from collections.abc import Sequence

from braid.lab import Host, Lab, environments, environments_here, free_port
from braid.lab.job import Place
from braid.lab.lab import CARD

_PORT = 29500
_SENT_COLUMN = 8  # of /proc/net/dev, behind the name


class Places:
    """The hosts of all jobs that are compared.

    Attributes:
        ranks: the number of ranks of a job.
        hosts: the number of hosts.
    """

    def __init__(self, lab: Lab | None, ranks_per_host: list[int]) -> None:
        """Use a lab with so many ranks on each host, or this machine with the sum of them."""
        self._lab, self._counts = lab, ranks_per_host
        self.ranks = sum(ranks_per_host)
        self.hosts = len(lab.hosts) if lab else 1
        self._jobs = 0

    def of_next_job(self) -> Sequence[Place]:
        """Return a host and the environment variables for every rank of one more job."""
        self._jobs += 1
        if self._lab:
            port = {"MASTER_PORT": str(_PORT + self._jobs)}
            return [(host, {**own, **port}) for host, own in environments(self._lab, self._counts)]
        return environments_here(self.ranks, "127.0.0.1", free_port())

    def sent_bytes(self) -> int:
        """Return the bytes that all hosts have sent to others; 0 on one host."""
        if not self._lab:
            return 0
        hosts: list[Host] = self._lab.hosts
        return sum(_sent(host.call(["cat", "/proc/net/dev"])) for host in hosts)


def _sent(table: str) -> int:
    lines = (line.partition(":") for line in table.splitlines())
    return next(int(numbers.split()[_SENT_COLUMN]) for name, _, numbers in lines if name.strip() == CARD)

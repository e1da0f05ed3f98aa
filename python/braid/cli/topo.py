# SPDX-License-Identifier: Apache-2.0
"""``braid topo``: what joins the hosts of a job, as it was measured."""

import os
import re
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from braid.cli.errors import CommandError
from braid.cli.lab_options import RanksPerHost
from braid.lab import Job, Lab, LabError, environments, parse_hosts, parse_ranks_per_host

_BAR = 30
_NUMBERS = re.compile(r"alpha_s=(\S+) beta_s_per_byte=(\S+)")
_CARD = re.compile(r"card (\d+) up_s_per_byte=(\S+) down_s_per_byte=(\S+)")


@dataclass(frozen=True)
class Cluster:
    """A topology's text, taken apart."""

    ranks: list[int]  # per host
    latency_us: float
    cards: list[tuple[float, float]]  # per host: up, down in Mbit/s

    @classmethod
    def parse(cls, text: str) -> "Cluster":
        """Read what Communicator.topology() returns."""
        lines = text.splitlines()
        hosts = Counter(int(host) for host in lines[0].removeprefix("topology hosts=").split(","))
        between = _NUMBERS.search(lines[2])
        assert between, lines[2]
        usual = _mbit(between[2])
        cards = {int(card[1]): (_mbit(card[2]), _mbit(card[3])) for card in map(_CARD.match, lines[3:]) if card}
        order = sorted(hosts)
        return cls(
            [hosts[host] for host in order],
            1e6 * float(between[1]),
            [cards.get(host, (usual, usual)) for host in order],
        )


def topo(
    lab: Annotated[
        str,
        typer.Option(
            help="Look at emulated hosts, as `braid lab` makes them: 3x1gbit,1x200mbit.", metavar="HOSTS"
        ),
    ] = "",
    ranks_per_host: RanksPerHost = "1",
) -> int:
    """Measure the links between the hosts of a job, and show them.

    Start it as the job is started, with torchrun --no-python or any launcher that sets RANK, WORLD_SIZE,
    MASTER_ADDR and MASTER_PORT; or in a lab. The first rank prints.
    """
    if not lab:
        _as_rank()
        return 0
    try:
        specs = parse_hosts(lab)
        counts = parse_ranks_per_host(ranks_per_host, len(specs))
        command = [sys.executable, "-m", "braid.cli", "topo"]
        with Lab(specs) as cluster, Job(environments(cluster, counts), command) as job:
            return max(abs(code) for code in job.wait())
    except LabError as error:
        raise CommandError(f"--lab: {error}") from error


def _as_rank() -> None:
    from braid import Communicator

    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if missing := [name for name in names if name not in os.environ]:
        raise CommandError(f"{', '.join(missing)} not set: start it with a launcher, as torchrun, or use --lab")
    with Communicator("env://", name="topo", timeout_s=120) as comm:
        if comm.rank == 0:
            show(Cluster.parse(comm.topology()))
        comm.barrier()


def show(cluster: Cluster) -> None:
    """Print a table, with a bar for every rate."""
    console = Console(highlight=False)
    if len(cluster.ranks) == 1:
        console.print(f"one host with {cluster.ranks[0]} ranks: no link is between hosts")
        return
    most = max(max(card) for card in cluster.cards)
    table = Table(
        title=f"{sum(cluster.ranks)} ranks on {len(cluster.ranks)} hosts, {cluster.latency_us:.0f} us apart"
    )
    for column in ("host", "ranks", "up Mbit/s", "", "down Mbit/s", ""):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for host, (ranks, (up, down)) in enumerate(zip(cluster.ranks, cluster.cards, strict=True)):
        table.add_row(str(host), str(ranks), f"{up:.0f}", _bar(up / most), f"{down:.0f}", _bar(down / most))
    console.print(table)


def _bar(part: float) -> str:
    return "█" * max(1, round(_BAR * part / 2))


def _mbit(s_per_byte: str) -> float:
    seconds = float(s_per_byte)
    return 8e-6 / seconds if seconds > 0 else float("inf")

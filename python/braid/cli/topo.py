# SPDX-License-Identifier: Apache-2.0
"""``braid topo``: what joins the hosts of a job, as it was measured or as a file has it."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from braid._links import SUFFIX, LinksFile
from braid._settings import value_of
from braid.cli.cluster import LabHosts, Links, RanksPerHost, Source, load_links

_BAR = 30
_NUMBERS = re.compile(r"alpha_s=(\S+) beta_s_per_byte=(\S+)")
_BURST = re.compile(r"burst bytes=(\S+)")
_WORK = re.compile(r"work (\w+) s_per_byte=(\S+)")
_CARD = re.compile(r"card (\d+) up_s_per_byte=(\S+) down_s_per_byte=(\S+)")


@dataclass(frozen=True)
class Cluster:
    """A topology's text, taken apart."""

    ranks: list[int]  # per host
    latency_us: float
    cards: list[tuple[float, float]]  # per host: up, down in Mbit/s
    burst_bytes: float  # that cards pass at once after a pause; 0 where they do not, or nobody measured it
    work: dict[str, float]  # GB/s of the slowest processor; empty where nobody measured it

    @classmethod
    def parse(cls, text: str) -> "Cluster":
        """Read what Communicator.topology() returns."""
        lines = text.splitlines()
        hosts = Counter(int(host) for host in lines[0].removeprefix("topology hosts=").split(","))
        between = _NUMBERS.search(lines[2])
        assert between, lines[2]
        usual = _mbit(between[2])
        cards = {int(card[1]): (_mbit(card[2]), _mbit(card[3])) for card in map(_CARD.match, lines[3:]) if card}
        burst = _BURST.match(lines[3]) if len(lines) > 3 else None
        order = sorted(hosts)
        return cls(
            [hosts[host] for host in order],
            1e6 * float(between[1]),
            [cards.get(host, (usual, usual)) for host in order],
            float(burst[1]) if burst else 0.0,
            {work[1]: 1e-9 / float(work[2]) for work in map(_WORK.match, lines[3:]) if work},
        )


def topo(
    lab: LabHosts = "",
    ranks_per_host: RanksPerHost = "1",
    links: Links = "",
    text: Annotated[
        bool, typer.Option("--text", help="Print what `braid explain --topology` and programs read, and no table.")
    ] = False,
) -> int:
    """Measure the links between the hosts of a job, and show them.

    Start it as the job is started, with torchrun --no-python or any launcher that sets RANK, WORLD_SIZE,
    MASTER_ADDR and MASTER_PORT; or in a lab. The first rank prints. With --links nothing is measured: it shows the
    hosts of a job, or of a lab, with the rates that the file has for them; with neither, the hosts of the file.
    """
    source = Source(lab, ranks_per_host, links)
    if source.is_links_alone and not text:
        show_file(load_links(links))
    elif (found := source.text()) is not None:
        if text:
            print(found, end="")
        else:
            show(Cluster.parse(found), is_measured=not links and not value_of("BRAID_LINKS").endswith(SUFFIX))
    return 0


def show(cluster: Cluster, *, is_measured: bool = True) -> None:
    """Print a table, with a bar for every rate. Of two measured hosts, say what limits the rates."""
    console = Console(highlight=False)
    if len(cluster.ranks) == 1:
        ranks = "1 rank" if cluster.ranks[0] == 1 else f"{cluster.ranks[0]} ranks"
        console.print(f"one host with {ranks}: no link is between hosts")
        return
    title = f"{sum(cluster.ranks)} ranks on {len(cluster.ranks)} hosts, {cluster.latency_us:.0f} us apart"
    rows = [[str(host), str(ranks)] for host, ranks in enumerate(cluster.ranks)]
    console.print(_table(title, ["host", "ranks"], rows, cluster.cards))
    if len(cluster.ranks) == 2 and is_measured:
        console.print(
            "each rate is limited by the other host: between two hosts only the slower card of a direction shows"
        )
    if cluster.burst_bytes:
        console.print(f"after a pause cards pass {cluster.burst_bytes:.0f} bytes at once, or more")
    if cluster.work:
        codes = ", ".join(f"{work} {rate:.3g}" for work, rate in cluster.work.items() if work != "reduce")
        sums = cluster.work.get("reduce", 0)
        console.print(f"a core of the slowest host, in GB/s of float32: sums {sums:.3g}; codes {codes}")


def show_file(file: LinksFile) -> None:
    """Print the table of a file of links, its hosts by name."""
    cards = [*file.hosts.values(), file.usual]
    rows = [[name] for name in (*file.hosts, "any other")]
    rates = [(card.up / 1e6, card.down / 1e6) for card in cards]
    Console(highlight=False).print(_table(f"hosts {1e6 * file.latency_s:.0f} us apart", ["host"], rows, rates))


def _table(title: str, columns: list[str], rows: list[list[str]], cards: list[tuple[float, float]]) -> Table:
    most = max(max(card) for card in cards)
    table = Table(title=title)
    for column in (*columns, "up Mbit/s", "", "down Mbit/s", ""):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for row, (up, down) in zip(rows, cards, strict=True):
        table.add_row(*row, f"{up:.0f}", _bar(up / most), f"{down:.0f}", _bar(down / most))
    return table


def _bar(part: float) -> str:
    return "█" * max(1, round(_BAR * part / 2))


def _mbit(s_per_byte: str) -> float:
    seconds = float(s_per_byte)
    return 8e-6 / seconds if seconds > 0 else float("inf")

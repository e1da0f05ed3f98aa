# SPDX-License-Identifier: Apache-2.0
"""All-reduce on unequal hosts, emulated on one machine: braid and Gloo in turn, and the bound of the links."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(os.path.relpath(Path(__file__).parent))  # of the checkout, wherever that is
MIB = 1 << 20
SECOND = "12500000"  # bytes: a second of a card of 100 Mbit/s
# Of what a shaped card passes, the part that is not headers: measured with plain TCP.
GOODPUT = 0.957


@dataclass(frozen=True)
class Cluster:
    """Hosts, and what is asked of them."""

    name: str
    hosts: str
    sizes: str = "64,16K,1M,16M"
    ranks_per_host: str = "1"
    seconds: float = 12.0
    servers: str = ""  # hosts that only help to sum
    api: str = "torch"

    @property
    def options(self) -> list[str]:
        more = [] if self.ranks_per_host == "1" else ["--ranks-per-host", self.ranks_per_host, "--round-robin"]
        if self.servers:
            more = ["--servers", str(len(rates(self.servers)))]
        return ["--lab", ",".join(filter(None, [self.hosts, self.servers])), "--api", self.api, *more]

    @property
    def title(self) -> str:
        each = "" if self.ranks_per_host == "1" else f", {self.ranks_per_host} ranks each in turn"
        return self.hosts + each + (f" and {self.servers} to help" if self.servers else "")


CLUSTERS = [
    Cluster("one_slow_of_four", "3x1gbit,1x200mbit"),
    Cluster("one_slow_of_eight", "7x100mbit,1x25mbit", "64,16K,1M,4M", seconds=20),
    Cluster("equal_four", "4x1gbit"),
    Cluster("equal_four_slower", "4x300mbit", "1M,16M"),
    Cluster("two_by_two", "2x1gbit", ranks_per_host="2"),
    Cluster("four_by_two", "4x300mbit", ranks_per_host="2"),
    Cluster("three_fast_one_a_little_slower", "3x100mbit,1x80mbit", f"64,16K,1M,4M,{SECOND}", seconds=20),
    Cluster(
        "three_fast_one_a_little_slower_helped",
        "3x100mbit,1x80mbit",
        SECOND,
        seconds=20,
        servers="1x100mbit",
        api="array",
    ),
    Cluster("four_alone", "4x100mbit", "1M,4M,16M"),
    Cluster("four_helped", "4x100mbit", "1M,4M,16M", servers="2x100mbit", api="array"),
]


def rates(hosts: str) -> list[tuple[float, float]]:
    """Return the bytes per second of each host's card, up and down."""
    from braid.lab import parse_hosts

    return [(host.up_bits_per_s / 8, host.down_bits_per_s / 8) for host in parse_hosts(hosts)]


def bound_s(cluster: Cluster, size: int) -> float:
    """Return the least time that the cards allow, headers taken off.

    With one rank per host it is the T* of docs/algorithms.md, which no tree, ring or star can beat. With several
    it is the same for hosts that each speak for all their ranks.
    """
    from braid import _core

    ranks, servers = rates(cluster.hosts), rates(cluster.servers) if cluster.servers else []
    up, down = zip(*ranks, *servers, strict=True)
    seconds_per_byte, _ = _core.optimal_split(up, down, [True] * len(ranks) + [False] * len(servers))
    return size * seconds_per_byte / GOODPUT


def measure(cluster: Cluster, seconds: float) -> dict:
    """Run `braid bench` on a cluster; return its report."""
    base = FOLDER / cluster.name
    command = [
        sys.executable,
        "-m",
        "braid.cli",
        "bench",
        "all_reduce",
        *cluster.options,
        "--sizes",
        cluster.sizes,
    ]
    command += ["--time", str(seconds), "--json", f"{base}.json", "--plot", f"{base}.png"]
    subprocess.run(command, check=True)
    return json.loads(Path(f"{base}.json").read_text())


def table(reports: dict[str, dict]) -> list[str]:
    """Return a Markdown table: medians in ms, Gloo's time as a multiple, and how far braid is above the bound."""
    lines = [
        "| hosts | size | braid ms | algorithm | Gloo ms | braid / Gloo | bound ms | above it |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cluster in CLUSTERS:
        if cluster.name not in reports:
            continue
        for case in reports[cluster.name]["cases"]:
            found = {name: measured["p50_us"] / 1000 for name, measured in case["measurements"].items()}
            ratio = case["ratios"]["gloo"]["median"]
            bound = bound_s(cluster, case["bytes"]) * 1000
            large = case["bytes"] >= MIB
            limits = f"{bound:.1f} | {100 * (found['braid'] / bound - 1):.0f} %" if large else " | "
            algorithm = case["measurements"]["braid"].get("algorithm", "")
            lines.append(
                f"| {cluster.title} | {size_text(case['bytes'])} | {found['braid']:.3g} | {algorithm} | "
                f"{found['gloo']:.3g} | {1 / ratio:.2f} | {limits} |"
            )
    return lines


def size_text(count: int) -> str:
    for unit, bytes_ in (("MiB", MIB), ("KiB", 1024)):
        if count >= bytes_:
            return f"{count / bytes_:.3g} {unit}"
    return f"{count} B"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time", type=float, default=1.0, help="A multiple of each cluster's own time.")
    parser.add_argument("--only", default="", help="Names of clusters, comma separated.")
    parser.add_argument("--show", action="store_true", help="Measure nothing; print the table of what is there.")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",") if arguments.only else [cluster.name for cluster in CLUSTERS]
    for cluster in CLUSTERS:
        if cluster.name in wanted and not arguments.show:
            measure(cluster, cluster.seconds * arguments.time)
    files = {cluster.name: FOLDER / f"{cluster.name}.json" for cluster in CLUSTERS}
    reports = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    print("\n".join(table(reports)))


if __name__ == "__main__":
    main()

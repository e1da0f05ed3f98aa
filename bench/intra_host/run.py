# SPDX-License-Identifier: Apache-2.0
"""All-reduce on one host: runs `braid bench` for several numbers of ranks, and prints the tables of the README."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(os.path.relpath(Path(__file__).parent))  # of the checkout, wherever that is
# The array API beside the MPIs, which it resembles; torch.distributed beside Gloo, which it replaces.
AGAINST = {"array": ["openmpi", "mpich", "gloo"], "torch": ["gloo"]}
SHOWN = {"array": ["openmpi", "mpich"], "torch": ["gloo"]}


def measure(api: str, ranks: int, arguments: argparse.Namespace) -> Path:
    """Run one benchmark; return its report."""
    base = FOLDER / f"all_reduce_{api}_{ranks}"
    folders = dict(entry.split("=", 1) for entry in arguments.mpi)
    found = {name: folder for name, folder in folders.items() if Path(folder, "bin").is_dir()}
    against = ",".join(f"{name}={found[name]}" if name in found else name for name in AGAINST[api])
    command = [sys.executable, "-m", "braid.cli", "bench", "all_reduce", "--ranks", str(ranks), "--api", api]
    command += ["--sizes", arguments.sizes, "--time", str(arguments.time), "--against", against]
    subprocess.run([*command, "--json", f"{base}.json", "--plot", f"{base}.png"], check=True)
    return Path(f"{base}.json")


def table(reports: dict[int, dict], others: list[str]) -> list[str]:
    """Return a Markdown table: for each number of ranks the medians in us, and their ratios to braid's."""
    names = ["braid", *others]
    titles = ["bytes"]
    for ranks in reports:
        titles += [f"{ranks} ranks: braid", *others, *(f"{name} / braid" for name in others)]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for cases in zip(*(report["cases"] for report in reports.values()), strict=True):
        cells = [size(cases[0]["bytes"])]
        for case in cases:
            found, ratios = case["measurements"], case["ratios"]
            cells += [short(found[name]["p50_us"]) if name in found else "n/a" for name in names]
            cells += [f"**{ratios[name]['median']:.2g}**" if name in ratios else "n/a" for name in others]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def size(count: int) -> str:
    for power, unit in ((20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count >> power} {unit}"
    return str(count)


def short(number: float) -> str:
    return f"{number:.3g}" if number < 1000 else f"{number:.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--sizes", default="8:64M:8")
    parser.add_argument("--time", type=float, default=3.0, help="seconds per size")
    parser.add_argument("--mpi", action="append", default=[], metavar="NAME=FOLDER", help="where an MPI is")
    arguments = parser.parse_args()
    tables = []
    for api, shown in SHOWN.items():
        reports = {n: json.loads(measure(api, n, arguments).read_text()) for n in arguments.ranks}
        tables += ["", f"{api}, {reports[arguments.ranks[0]]['settings']['dtype']}", "", *table(reports, shown)]
    print("\n".join(tables))
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Collectives on one host: runs `braid bench` for several numbers of ranks, prints the tables of the README."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(os.path.relpath(Path(__file__).parent))  # of the checkout, wherever that is
# The array API beside the MPIs, which it resembles; torch.distributed beside Gloo, which it replaces.
AGAINST = {"array": ["openmpi", "mpich", "intelmpi", "gloo"], "torch": ["gloo"]}
SHOWN = {"array": ["openmpi", "mpich", "intelmpi"], "torch": ["gloo"]}


OTHERS = ["all_gather", "reduce_scatter", "broadcast", "all_to_all"]
DTYPES = ["float32", "bfloat16", "float16"]


class Bench:
    """Runs `braid bench` and keeps its reports beside this file."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        folders = dict(entry.split("=", 1) for entry in arguments.mpi)
        self.folders = {name: folder for name, folder in folders.items() if Path(folder, "bin").is_dir()}
        self.seconds = arguments.time

    def report(self, name: str, collective: str, ranks: int, against: list[str], options: list[str]) -> dict:
        """Run one benchmark; return its report."""
        base = FOLDER / name
        command = [sys.executable, "-m", "braid.cli", "bench", collective, "--ranks", str(ranks)]
        command += ["--time", str(self.seconds), "--json", f"{base}.json", *options]
        if against:
            command += [
                "--against",
                ",".join(f"{o}={self.folders[o]}" if o in self.folders else o for o in against),
            ]
        subprocess.run(command, check=True)
        return json.loads(Path(f"{base}.json").read_text())

    def all_reduce(self, api: str, ranks: int, sizes: str) -> dict:
        name = f"all_reduce_{api}_{ranks}"
        options = ["--api", api, "--sizes", sizes, "--plot", f"{FOLDER / name}.png"]
        return self.report(name, "all_reduce", ranks, AGAINST[api], options)

    def other(self, collective: str, ranks: int) -> dict:
        options = ["--api", "array", "--sizes", "8,4K,256K,2M,16M,64M"]
        return self.report(f"{collective}_array_{ranks}", collective, ranks, SHOWN["array"], options)

    def dtype(self, dtype: str, ranks: int) -> dict:
        options = ["--api", "torch", "--sizes", "256K,2M,16M,64M", "--dtype", dtype]
        return self.report(f"all_reduce_{dtype}_{ranks}", "all_reduce", ranks, ["gloo"], options)


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


def table_of_others(reports: dict[str, dict[int, dict]]) -> list[str]:
    """Return a Markdown table: braid's medians in us, and the ratio of the best MPI's to them."""
    numbers = list(next(iter(reports.values())))
    titles = ["", "bytes", *(title for n in numbers for title in (f"{n} ranks: braid", "best MPI / braid"))]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for collective, by_ranks in reports.items():
        for cases in zip(*(report["cases"] for report in by_ranks.values()), strict=True):
            cells = [collective, size(cases[0]["bytes"])]
            for case in cases:
                ratios = [ratio["median"] for ratio in case["ratios"].values()]
                cells += [
                    short(case["measurements"]["braid"]["p50_us"]),
                    f"**{min(ratios):.2g}**" if ratios else "n/a",
                ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def table_of_dtypes(reports: dict[str, dict]) -> list[str]:
    """Return a Markdown table: GB/s of the vector, and Gloo's time as a multiple of braid's."""
    titles = ["bytes", *(title for dtype in reports for title in (f"{dtype}: GB/s", "gloo / braid"))]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for cases in zip(*(report["cases"] for report in reports.values()), strict=True):
        cells = [size(cases[0]["bytes"])]
        for case in cases:
            rate = case["bytes"] / case["measurements"]["braid"]["p50_us"] / 1e3
            cells += [f"{rate:.2g}", f"**{case['ratios']['gloo']['median']:.2g}**"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--sizes", default="8,64,512,4K,64K,256K,1M,4M,16M,64M", help="of all_reduce")
    parser.add_argument("--time", type=float, default=3.0, help="seconds per size")
    parser.add_argument("--mpi", action="append", default=[], metavar="NAME=FOLDER", help="where an MPI is")
    parts = ["all_reduce", "others", "dtypes"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    arguments = parser.parse_args()
    bench = Bench(arguments)
    tables = []
    for api, shown in SHOWN.items() if "all_reduce" in arguments.parts else ():
        reports = {n: bench.all_reduce(api, n, arguments.sizes) for n in arguments.ranks}
        tables += ["", f"{api}, {reports[arguments.ranks[0]]['settings']['dtype']}", "", *table(reports, shown)]
    if "others" in arguments.parts:
        others = {collective: {n: bench.other(collective, n) for n in arguments.ranks} for collective in OTHERS}
        tables += ["", "others", "", *table_of_others(others)]
    if "dtypes" in arguments.parts:
        tables += ["", "dtypes", "", *table_of_dtypes({dtype: bench.dtype(dtype, 2) for dtype in DTYPES})]
    print("\n".join(tables))
    return 0


if __name__ == "__main__":
    sys.exit(main())

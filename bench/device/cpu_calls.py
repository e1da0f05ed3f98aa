# SPDX-License-Identifier: Apache-2.0
"""An 8-byte all_reduce of CPU tensors, with the code for accelerators and as it was before that code.

The other version is built from the parent of the commit that brought csrc/c10d/device.cc. Both versions run side
by side and take turns, so that load of the machine meets both. A pair is a turn of each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
WARM_UP = 2000


def be_a_rank(store: str, rank: int, ranks: int) -> None:
    """For each number in a line of input: make so many calls, and print the median of their microseconds."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("braid", init_method=f"file://{store}", rank=rank, world_size=ranks)
    tensor = torch.ones(2)
    now = time.perf_counter_ns
    for line in sys.stdin:
        found = []
        for _ in range(int(line)):
            began = now()
            dist.all_reduce(tensor)
            found.append(now() - began)
        print(statistics.median(found) / 1000, flush=True)
    dist.destroy_process_group()


class Team:
    """The ranks of one version."""

    def __init__(self, package: Path, folder: Path, ranks: int) -> None:
        """Start the ranks with the braid that is in the folder `package`; `folder` is for their store."""
        environment = {**os.environ, "PYTHONPATH": str(package), "BRAID_QUIET": "1"}
        folder.mkdir()
        self._processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank", str(folder / "store"), str(rank), str(ranks)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder,
            )
            for rank in range(ranks)
        ]  # fmt: skip

    def median_us(self, calls: int) -> float:
        """Return the microseconds of a call: the median of the slowest rank."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{calls}\n")
            process.stdin.flush()
        return max(float(process.stdout.readline()) for process in self._processes if process.stdout)

    def end(self) -> None:
        """Let the ranks end."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            process.wait(timeout=60)


def measure(before: Path, after: Path, ranks: int, pairs: int, calls: int) -> dict[str, Any]:
    """Return the medians of both versions, and the ratios of the pairs.

    Args:
        before: a folder with an installed braid.
        after: the same of the other version.
        ranks: on this host.
        pairs: how many turns each version has.
        calls: in each turn.
    """
    with tempfile.TemporaryDirectory() as name:
        teams = [Team(package, Path(name, str(i)), ranks) for i, package in enumerate((before, after))]
        for team in teams:
            team.median_us(WARM_UP)
        turns: list[tuple[float, float]] = []
        for pair in range(pairs):
            order = (0, 1) if pair % 2 == 0 else (1, 0)
            found = {which: teams[which].median_us(calls) for which in order}
            turns.append((found[0], found[1]))
        for team in teams:
            team.end()
    return {"ranks": ranks, "pairs": pairs, "calls": calls, **summary(turns)}


def summary(turns: list[tuple[float, float]]) -> dict[str, float]:
    """Return the numbers of pairs of times before and after: medians, and the quartiles of the ratios."""
    ratios = [after / before for before, after in turns]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {
        "before_us": round(statistics.median(before for before, _ in turns), 3),
        "after_us": round(statistics.median(after for _, after in turns), 3),
        "ratio": round(middle, 4),
        "ratio_quartiles_low": round(low, 4),
        "ratio_quartiles_high": round(high, 4),
    }


@contextmanager
def built(commit: str) -> Iterator[Path]:
    """Give a folder with braid as it was at a commit, installed; it needs what `make setup` has installed."""
    with tempfile.TemporaryDirectory(prefix="braid-before-") as name:
        tree, package = Path(name, "tree"), Path(name, "package")
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(tree), commit], check=True)
        try:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # cmake, ninja
            environment = {**os.environ, "PATH": path}
            subprocess.run([*pip, "--target", str(package), str(tree)], check=True, env=environment)
            environment["PYTHONPATH"] = str(package)
            build = "import sys; from braid.cli import main; sys.exit(main(['build']))"
            subprocess.run([sys.executable, "-c", build], check=True, env=environment, cwd=name)
            yield package
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(tree)], check=True)


def commit_before() -> str:
    """Return the parent of the commit that brought the code for accelerators."""
    log = ["git", "-C", str(ROOT), "log", "--diff-filter=A", "--format=%H", "--", "csrc/c10d/device.cc"]
    found = subprocess.run(log, check=True, capture_output=True, text=True).stdout.split()
    return f"{found[-1]}^"


def main() -> None:
    """Print the rows and write them beside this script."""
    import braid

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", metavar="COMMIT", help="the other version; else the one before accelerators")
    parser.add_argument("--package", type=Path, help="a folder with the other version, installed: no build")
    parser.add_argument("--ranks", default="1,2", help="on this host")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--calls", type=int, default=3000, help="of each version in a pair")
    parser.add_argument("--out", default=str(FOLDER / "cpu_calls.json"))
    options = parser.parse_args()
    after = Path(braid.__file__).resolve().parents[1]
    counts = [int(ranks) for ranks in options.ranks.split(",")]

    def rows(before: Path) -> list[dict[str, Any]]:
        return [measure(before, after, ranks, options.pairs, options.calls) for ranks in counts]

    if options.package:
        found = rows(options.package.resolve())
    else:
        with built(options.before or commit_before()) as package:
            found = rows(package)
    Path(options.out).write_text(json.dumps({"cores": os.cpu_count(), "rows": found}, indent=1) + "\n")
    for row in found:
        print(*(f"{key}={value}" for key, value in row.items()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()

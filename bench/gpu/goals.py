# SPDX-License-Identifier: Apache-2.0
"""Whether all_reduces of a GPU's tensors are as fast as their parts allow: the goals, each with its number.

python bench/gpu/goals.py FOLDER [--device cuda] [--ranks 2] [--time 8]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LARGE, SMALL = 64 << 20, 8
LEAST_SHARE = 0.85
MOST_EXTRA_US = 60.0
LEAST_RATIO = 1.5
_COPIES = 20


@dataclass
class Goal:
    """One goal: what was found, what is wanted, and whether it is met; None where it was not measured."""

    name: str
    found: float | None
    wanted: float
    met: bool | None
    numbers: dict[str, Any]

    def line(self) -> str:
        """Return a line of the table."""
        verdict = {True: "met", False: "MISSED", None: "not measured"}[self.met]
        found = "" if self.found is None else f"{self.found:.3g}"
        return f"{self.name:66} {found:>8} (goal {self.wanted:g})  {verdict}"


def _p50_us(report: dict[str, Any], nbytes: int, who: str = "braid") -> float | None:
    for case in report["cases"]:
        if case["bytes"] == nbytes and who in case["measurements"]:
            return float(case["measurements"][who]["p50_us"])
    return None


def judge(
    device: dict[str, Any],
    host: dict[str, Any],
    copies_us: dict[str, float],
    small_copies_us: dict[str, float] | None = None,
) -> list[Goal]:
    """Return the goals, from the reports of ``braid bench`` on a device and on the host, and the time of copies.

    Args:
        device: report of all_reduce on tensors of a device, of SMALL and LARGE bytes, against Gloo.
        host: the same on tensors in host memory.
        copies_us: "down" and "up": the time to copy LARGE bytes between device and page-locked memory.
        small_copies_us: the same of SMALL bytes; it goes with the numbers, and judges nothing.
    """
    on_device, on_host = _p50_us(device, LARGE), _p50_us(host, LARGE)
    copy_us = max(copies_us.values(), default=0.0)
    share = max(copy_us, on_host) / on_device if on_device and on_host and copy_us else None
    small_device, small_host = _p50_us(device, SMALL), _p50_us(host, SMALL)
    extra = small_device - small_host if small_device and small_host else None
    gloo = _p50_us(device, LARGE, "gloo")
    ratio = gloo / on_device if gloo and on_device else None
    return [
        Goal(
            "64 MiB: rate, of the slower of page-locked copy and host all_reduce",
            *(share, LEAST_SHARE, None if share is None else share >= LEAST_SHARE),
            {"device_us": on_device, "host_us": on_host, "copies_us": copies_us},
        ),
        Goal(
            "8 bytes: microseconds more than on the host",
            *(extra, MOST_EXTRA_US, None if extra is None else extra <= MOST_EXTRA_US),
            {"device_us": small_device, "host_us": small_host, "copies_us": small_copies_us},
        ),
        Goal(
            "64 MiB: Gloo's time over braid's",
            *(ratio, LEAST_RATIO, None if ratio is None else ratio >= LEAST_RATIO),
            {"device_us": on_device, "gloo_us": gloo},
        ),
    ]


def _copy(place: tuple[int, int], device: str, nbytes: int, start: Any, found: Any) -> None:
    """Time copies of one process, while the others copy, too."""
    import torch
    from braid._bench.ranks.torch_device import device_for, module_of

    rank, ranks = place
    where = device_for(device, "braid", rank, ranks)
    synchronize = module_of(where.type).synchronize
    there = torch.empty(nbytes, dtype=torch.uint8, device=where)
    here = torch.empty(nbytes, dtype=torch.uint8).pin_memory()
    medians = {}
    for way, (to, source) in {"down": (here, there), "up": (there, here)}.items():
        to.copy_(source, non_blocking=True)
        synchronize()
        start.wait()
        times = []
        for _ in range(_COPIES):
            begin = time.perf_counter()
            to.copy_(source, non_blocking=True)
            synchronize()
            times.append(1e6 * (time.perf_counter() - begin))
        medians[way] = statistics.median(times)
    found.put(medians)


def copies(device: str, ranks: int, nbytes: int = LARGE) -> dict[str, float]:
    """Return the slowest process's median time in microseconds, each way, while all of them copy."""
    context = multiprocessing.get_context("spawn")
    start, found = context.Barrier(ranks), context.Queue()
    processes = [
        context.Process(target=_copy, args=((rank, ranks), device, nbytes, start, found)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    try:
        all_medians = [found.get(timeout=120) for _ in processes]
    finally:
        for process in processes:
            process.join(10)
            process.kill()
    return {way: max(medians[way] for medians in all_medians) for way in ("down", "up")}


def bench(device: str, against: str, given: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Run ``braid bench all_reduce``; return its report."""
    command = [sys.executable, "-m", "braid.cli", "bench", "all_reduce", "--ranks", str(given.ranks)]
    command += ["--sizes", f"{SMALL},{LARGE}", "--time", str(given.time), "--device", device]
    command += ["--against", against, "--json", str(out)]
    subprocess.run(command, check=True, timeout=300)
    report: dict[str, Any] = json.loads(out.read_text())
    return report


def main() -> int:
    """Measure, print the goals, write FOLDER/goals.json. A goal that is missed is no error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--time", type=float, default=8.0, help="seconds per size")
    given = parser.parse_args()
    on_device = bench(given.device, "gloo", given, given.folder / "all_reduce-device.json")
    on_host = bench("cpu", "none", given, given.folder / "all_reduce-host.json")
    small_copies = copies(given.device, given.ranks, SMALL)
    goals = judge(on_device, on_host, copies(given.device, given.ranks), small_copies)
    print("\n".join(goal.line() for goal in goals))
    alone = copies(given.device, 1, SMALL)
    print(f"8 bytes: a copy that is waited for takes {small_copies} us; of one rank alone {alone} us")
    (given.folder / "goals.json").write_text(json.dumps([asdict(goal) for goal in goals], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

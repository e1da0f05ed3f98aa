# SPDX-License-Identifier: Apache-2.0
"""What waits in queues: operations with and without pacing, before ordinary ports of a switch and shallow ones."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(os.path.relpath(Path(__file__).parent))  # of the checkout, wherever that is
MIB = 1 << 20
# hosts, operation, bytes per rank, KiB of a port's queue (0: the lab's own), operations in a job
CASES = (
    ("2x25mbit", "all_reduce", MIB, 0, 8),
    ("4x100mbit", "all_reduce", MIB, 0, 12),
    ("4x1gbit", "all_reduce", 16 * MIB, 0, 8),
    ("7x100mbit,1x25mbit", "all_reduce", 2 * MIB, 0, 5),
    ("7x100mbit,1x25mbit", "all_reduce", 2 * MIB, 32, 5),
    ("7x100mbit,1x25mbit", "gather", MIB // 2, 0, 4),
    ("7x100mbit,1x25mbit", "gather", MIB // 2, 32, 4),
)
PACING = {"without": "0", "with": "1"}
COUNTERS = ("OutSegs", "RetransSegs", "TCPTimeouts")


def be_a_rank(folder: str, operation: str, nbytes: int, count: int) -> None:
    """Run the operation again and again; rank by rank, write what it took and what TCP counted."""
    import braid
    import numpy as np

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    pattern = (np.arange(nbytes // 4) % 1000).astype(np.float32)
    stamps, before = [], {}
    with braid.Communicator(f"file://{folder}/meeting", rank=rank, size=size, timeout_s=120) as comm:
        for number in range(count + 1):
            x = pattern + np.float32(rank)
            comm.barrier()
            comm.barrier()
            start = time.monotonic()
            if operation == "gather":
                got = comm.gather(x, root=size - 1)
                right = rank != size - 1 or all(np.array_equal(got[r], pattern + r) for r in range(size))
            else:
                comm.all_reduce(x)
                right = np.array_equal(x, pattern * size + size * (size - 1) / 2)
            end = time.monotonic()
            if not right:
                raise SystemExit(f"rank {rank}: wrong results of {operation}")
            if number:
                stamps.append((start, end))
            else:
                before = counters()  # of measuring the links, and of the first
        comm.barrier()
        after = counters()
    told = {"stamps": stamps, **{name: after[name] - before[name] for name in COUNTERS}}
    Path(folder, f"rank{rank}.json").write_text(json.dumps(told))


def counters() -> dict[str, int]:
    """Return what the kernel has counted on this host."""
    found: dict[str, int] = {}
    for path in ("/proc/net/snmp", "/proc/net/netstat"):
        rows = [line.split() for line in Path(path).read_text().splitlines()]
        for names, values in zip(rows[::2], rows[1::2], strict=True):
            found |= {name: int(value) for name, value in zip(names[1:], values[1:], strict=True)}
    return {name: found[name] for name in COUNTERS}


def measure(case: tuple, rounds: int) -> dict:
    """Measure one case, jobs with and without in turn; the second and later ones know the links."""
    from braid.lab import Job, Lab, environments

    hosts, operation, nbytes, queue_kib, count = case
    seconds: dict[str, list[float]] = {way: [] for way in PACING}
    counted = {way: dict.fromkeys(COUNTERS, 0) for way in PACING}
    with tempfile.TemporaryDirectory() as folder, Lab(hosts, queue_kib * 1024 or None) as lab:
        size = len(lab.hosts)
        for number in range(rounds * len(PACING)):
            way = list(PACING)[(number + number // len(PACING)) % len(PACING)]
            job_folder = Path(folder, str(number))
            job_folder.mkdir()
            places = environments(lab, [1] * size)
            places = [(host, {k: own[k] for k in own if k != "BRAID_LINKS"}) for host, own in places]
            command = [sys.executable, str(FOLDER / "queues.py"), "--rank", str(job_folder)]
            environment = {name: os.environ[name] for name in os.environ if name != "BRAID_LINKS"}
            environment |= {"BRAID_CACHE_DIR": f"{folder}/cache", "BRAID_PACING": PACING[way]}
            with Job(places, [*command, operation, str(nbytes), str(count)], env=environment) as job:
                codes = job.wait(120)
            if any(codes):
                raise SystemExit(f"{hosts}: the ranks ended with {codes}")
            told = [json.loads(Path(job_folder, f"rank{r}.json").read_text()) for r in range(size)]
            for stamps in zip(*(one["stamps"] for one in told), strict=True):
                seconds[way].append(max(end for _, end in stamps) - max(start for start, _ in stamps))
            for name in COUNTERS:
                counted[way][name] += sum(one[name] for one in told)
    found = {"hosts": hosts, "operation": operation, "bytes": nbytes, "queue_kib": queue_kib}
    for way in PACING:
        per = {name: round(value / len(seconds[way]), 2) for name, value in counted[way].items()}
        times = [round(s, 5) for s in seconds[way]]
        found[way] = {"median_s": round(statistics.median(times), 5), "seconds": times, **per}
    return found


def table(cases: list[dict]) -> list[str]:
    """Return Markdown."""
    lines = [
        "| hosts | operation, bytes per rank | queue | without, ms | with, ms | sent twice, of so many segments |",
        "|---" * 6 + "|",
    ]
    for case in cases:
        without, paced = case["without"], case["with"]
        size = f"{case['bytes'] // MIB} MiB" if case["bytes"] >= MIB else f"{case['bytes'] >> 10} KiB"
        queue = f"{case['queue_kib']} KiB" if case["queue_kib"] else "the lab's"
        twice = " and ".join(f"{one['RetransSegs']:.0f}" for one in (without, paced))
        lines.append(
            f"| {case['hosts']} | {case['operation']}, {size} | {queue} | {without['median_s'] * 1e3:.1f} | "
            f"{paced['median_s'] * 1e3:.1f} | {twice}, of {paced['OutSegs']:.0f} |"
        )
    return lines


def main() -> None:
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
        return
    from braid._bench.machine import facts

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="Jobs with, and as many without, in each case.")
    parser.add_argument("--cases", help="Their numbers, from 0, with commas between; all if not given.")
    arguments = parser.parse_args()
    path = FOLDER / "queues.json"
    numbers = [int(n) for n in arguments.cases.split(",")] if arguments.cases else range(len(CASES))
    cases = [measure(CASES[number], arguments.rounds) for number in numbers]
    if len(cases) == len(CASES):
        report = {"machine": facts.facts(), "load": round(os.getloadavg()[0], 1), "cases": cases}
        path.write_text(json.dumps(report, indent=1) + "\n")
    print("\n".join(table(cases)))


if __name__ == "__main__":
    main()

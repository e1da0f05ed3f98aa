# SPDX-License-Identifier: Apache-2.0
"""All-reduce between slow hosts, exact and by each codec in turn: measured beside what the cost model predicts."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FOLDER = Path(os.path.relpath(Path(__file__).parent))  # of the checkout, wherever that is
EXACT = "exact"
CODECS = ["fp16", "bf16", "fp8_e4m3", "int8", "qsgd", "int4", "sign", "top_k:0.01", "top_k:0.001", "random_k:0.01"]


def rank_main(folder: Path, elements: int, rounds: int, codecs: list[str]) -> None:
    """Be one rank: time every codec once per round, after one round that is not counted."""
    import braid
    import numpy as np

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with braid.Communicator(f"file://{folder}/meeting", rank=rank, size=size, timeout_s=120) as comm:
        values = np.random.default_rng(rank).standard_normal(elements).astype(np.float32)
        residual = np.zeros(elements, np.float32)
        times: dict[str, list[float]] = {codec: [] for codec in codecs}
        cpu: dict[str, list[float]] = {codec: [] for codec in codecs}
        for _ in range(rounds + 1):
            for codec in codecs:
                x = values.copy()
                comm.barrier()
                began, used = time.perf_counter(), time.process_time()
                if codec == EXACT:
                    comm.all_reduce(x, "avg")
                else:
                    comm.lossy_all_reduce(x, codec, residual=residual)
                elapsed = np.array([time.perf_counter() - began])
                times[codec].append(float(comm.all_reduce(elapsed, "max")[0]))
                cpu[codec].append(time.process_time() - used)
        rows = []
        for codec in codecs:
            told = comm.explain("all_reduce", 4 * elements, op="avg", codec=None if codec == EXACT else codec)
            rows.append(
                {
                    "codec": codec,
                    "algorithm": told["algorithm"],
                    "predicted_s": told["predicted_s"],
                    "times_s": times[codec][1:],
                    "cpu_s": cpu[codec][1:],
                }
            )
        if rank == 0:
            (folder / "rows.json").write_text(json.dumps(rows))


def measure(hosts: str, elements: int, rounds: int, codecs: list[str]) -> list[dict[str, Any]]:
    """Run the ranks in a lab, one per host."""
    from braid.lab import Job, Lab, environments

    with Lab(hosts) as lab, TemporaryDirectory() as folder:
        places = environments(lab, [1] * len(lab.hosts))
        command = [sys.executable, __file__, "--rank-in", folder, str(elements), str(rounds), ",".join(codecs)]
        with Job(places, command, stderr=subprocess.PIPE) as job:
            codes = job.wait(1200)
            says = [rank.stderr.read().decode() for rank in job.ranks if rank.stderr]
        if any(codes):
            raise SystemExit("\n".join(says))
        rows: list[dict[str, Any]] = json.loads((Path(folder) / "rows.json").read_text())
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table, with paired ratios to the exact one."""
    exact = rows[0]["times_s"]
    print(f"{'codec':>14} {'algorithm':>10} {'time':>9} {'predicted':>9} {'off by':>7} {'exact/it':>9}")
    for row in rows:
        time_s = statistics.median(row["times_s"])
        gain = statistics.median(a / b for a, b in zip(exact, row["times_s"], strict=True))
        off = time_s / row["predicted_s"] - 1
        print(
            f"{row['codec']:>14} {row['algorithm']:>10} {time_s * 1e3:>6.0f} ms "
            f"{row['predicted_s'] * 1e3:>6.0f} ms {off:>+6.0%} {gain:>8.2f}x"
        )


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="4x200mbit", help="of the lab")
    parser.add_argument("--elements", type=int, default=25_000_000, help="float32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--codecs", default=",".join(CODECS))
    parser.add_argument("--json", type=Path, default=FOLDER / "all_reduce.json")
    parser.add_argument("--rank-in", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank_in:
        folder, elements, rounds, codecs = asked.rank_in
        rank_main(Path(folder), int(elements), int(rounds), codecs.split(","))
        return
    rows = measure(asked.hosts, asked.elements, asked.rounds, [EXACT, *asked.codecs.split(",")])
    show(rows)
    told = {"hosts": asked.hosts, "elements": asked.elements, "rounds": asked.rounds, "rows": rows}
    asked.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()

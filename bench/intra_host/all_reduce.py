# SPDX-License-Identifier: Apache-2.0
"""All-reduce through torch.distributed on one host: braid beside Gloo, in the same processes, round by round.

Every round times both backends on the same tensor, so that drift of the machine hits both; ratios are medians of
paired rounds. Each size is checked on fresh data before it is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES = [8, 64, 512, 4 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
BACKENDS = ("gloo", "braid")


def iterations(size: int) -> tuple[int, int]:
    """Rounds, and calls timed together in each round."""
    if size <= 4 << 10:
        return 30, 20
    if size <= 1 << 20:
        return 20, 5
    return (12, 1) if size <= 16 << 20 else (7, 1)


def check(tensor: torch.Tensor, group: Any, rank: int, ranks: int) -> bool:
    generator = torch.Generator().manual_seed(rank)
    tensor.copy_(torch.randint(-100, 100, tensor.shape, generator=generator))
    expected = torch.zeros_like(tensor)
    for other in range(ranks):
        expected += torch.randint(-100, 100, tensor.shape, generator=torch.Generator().manual_seed(other))
    dist.all_reduce(tensor, group=group)
    return torch.equal(tensor, expected)


def timed(tensor: torch.Tensor, group: Any, calls: int) -> float:
    dist.barrier(group=group)
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - start) / calls


def measure(rank: int, ranks: int, store_path: str, sizes: list[int], result_path: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(store_path, ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(minutes=5))
    groups = {"gloo": dist.group.WORLD, "braid": dist.new_group(backend="braid")}
    rows = []
    for size in sizes:
        tensor = torch.ones(size // 4)
        wrong = [name for name, group in groups.items() if not check(tensor, group, rank, ranks)]
        if wrong:
            raise SystemExit(f"{wrong} summed {size} bytes wrongly on rank {rank}")
        rounds, calls = iterations(size)
        times: dict[str, list[float]] = {name: [] for name in BACKENDS}
        for round_number in range(rounds + 2):
            tensor.fill_(0)
            for name in BACKENDS if round_number % 2 else reversed(BACKENDS):
                seconds = timed(tensor, groups[name], calls)
                if round_number >= 2:
                    times[name].append(seconds)
        rows.append({"bytes": size, **{name: times[name] for name in BACKENDS}})
        if rank == 0:
            print(line(rows[-1], ranks), flush=True)
    if rank == 0:
        algorithms = groups["braid"]._get_backend(torch.device("cpu")).stats()
        Path(result_path).write_text(json.dumps({"rows": rows, "algorithms": algorithms}))
    dist.barrier()
    dist.destroy_process_group()


def line(row: dict[str, Any], ranks: int) -> str:
    gloo, braid = (statistics.median(row[name]) for name in BACKENDS)
    ratio = statistics.median(g / b for g, b in zip(row["gloo"], row["braid"], strict=True))
    bus = 2 * (ranks - 1) / ranks * row["bytes"] / 1e9
    return (
        f"{ranks:>5} {row['bytes']:>10} {1e6 * gloo:>12.1f} {1e6 * braid:>12.1f} {ratio:>9.1f}x"
        f" {bus / gloo:>10.2f} {bus / braid:>10.2f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    parser.add_argument("--json", type=Path, help="write all times here")
    arguments = parser.parse_args()
    print("ranks      bytes      Gloo us     braid us  Gloo/braid  Gloo GB/s braid GB/s  (bus bandwidth)")
    results = []
    for ranks in arguments.ranks:
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder, "result.json")
            mp.spawn(measure, (ranks, f"{folder}/store", arguments.sizes, str(result)), nprocs=ranks)
            results.append({"ranks": ranks, **json.loads(result.read_text())})
    if arguments.json:
        machine = {
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "torch": torch.__version__,
        }
        arguments.json.write_text(json.dumps({"machine": machine, "command": sys.argv, "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

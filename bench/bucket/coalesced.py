# SPDX-License-Identifier: Apache-2.0
"""200 small all_reduces: as a list, which braid packs into one, and as operations of their own each."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from braid import _core
from braid._bench.intervals import median_interval
from braid._machine import cpu_model

COUNT = 200
CPU = torch.device("cpu")


def tensors_of(kib: int) -> list[torch.Tensor]:
    """Return tensors of so many KiB; for 0 of 1 to 64 KiB, as many between each two powers of two."""
    generator = torch.Generator().manual_seed(1)
    sizes = [1024 * (kib or 2 ** (6 * torch.rand(1, generator=generator).item())) for _ in range(COUNT)]
    return [torch.ones(int(size) // 4) for size in sizes]


def as_a_list(tensors: list[torch.Tensor]) -> None:
    dist.group.WORLD._get_backend(CPU).allreduce_coalesced(tensors).wait()


def one_by_one(tensors: list[torch.Tensor]) -> None:
    backend = dist.group.WORLD._get_backend(CPU)
    backend._start_coalescing()
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    backend._end_coalescing().wait()


def measure(tensors: list[torch.Tensor], rounds: int) -> dict[Any, list[float]]:
    times: dict[Any, list[float]] = {as_a_list: [], one_by_one: []}
    for turn in range(rounds + 1):
        for call in times if turn % 2 else reversed(times):
            for tensor in tensors:
                tensor.fill_(1)
            dist.barrier()
            begin = time.perf_counter()
            call(tensors)
            taken = time.perf_counter() - begin
            assert all((tensor == dist.get_world_size()).all() for tensor in tensors)
            if turn > 0:  # the first round warms up
                times[call].append(taken * 1e3)
    return times


def run(rank: int, ranks: int, folder: str, apart: bool, sizes: list[int], rounds: int) -> None:
    torch.set_num_threads(1)
    if apart:
        os.environ |= {"BRAID_HOST": f"host-{rank}", "BRAID_LINKS": "assume"}
    dist.init_process_group("braid", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    for kib in sizes:
        times = measure(tensors_of(kib), rounds)
        ratios = [a / b for a, b in zip(times[one_by_one], times[as_a_list], strict=True)]

        def summary(values: list[float]) -> dict[str, Any]:
            ends = [round(end, 2) for end in median_interval(values)]
            return {"median": round(median(values), 2), "interval": ends}

        if rank == 0:
            row = {"ranks": ranks, "apart": apart, "kib": kib, "one by one, ms": summary(times[one_by_one])}
            row |= {"as a list, ms": summary(times[as_a_list]), "ratio": summary(ratios)}
            (Path(folder) / f"{kib}.json").write_text(json.dumps(row))
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "coalesced.json")
    arguments = parser.parse_args()
    rows = []
    for apart in (False, True):
        for ranks in (2, 4):
            sizes = [0, 1, 16] + [64] * apart
            with tempfile.TemporaryDirectory() as folder:
                torch.multiprocessing.spawn(run, (ranks, folder, apart, sizes, arguments.rounds), nprocs=ranks)
                rows += [json.loads((Path(folder) / f"{kib}.json").read_text()) for kib in sizes]
    report = {"processor": cpu_model(), "torch": torch.__version__, "commit": _core.commit, "rows": rows}
    arguments.json.write_text(json.dumps({**report, "rounds": arguments.rounds}, indent=1) + "\n")
    for row in rows:
        cells = [row[name] for name in ("one by one, ms", "as a list, ms", "ratio")]
        shown = [f"{cell['median']:.1f} ({cell['interval'][0]:.1f}-{cell['interval'][1]:.1f})" for cell in cells]
        size = f"{row['kib']} KiB" if row["kib"] else "1-64 KiB"
        print(f"| {row['ranks']} | {'TCP' if row['apart'] else 'one host'} | {size} | {' | '.join(shown)} |")

# SPDX-License-Identifier: Apache-2.0
"""200 small operations of a kind: as a list, which braid packs into one, and as operations of their own each."""

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
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
CPU = torch.device("cpu")


class Lists:
    """What one collective takes: vectors of so many KiB over all ranks, and their parts, one for each rank."""

    def __init__(self, collective: str, kib: int) -> None:
        """Make vectors; for 0 KiB of 1 to 64, as many between each two powers of two."""
        generator = torch.Generator().manual_seed(1)
        sizes = [1024 * (kib or 2 ** (6 * torch.rand(1, generator=generator).item())) for _ in range(COUNT)]
        ranks = dist.get_world_size()
        self.collective = collective
        self.wholes = [torch.ones(int(size) // 4 // ranks * ranks) for size in sizes]
        self.parts = [torch.ones(len(whole) // ranks) for whole in self.wholes]

    def as_a_list(self) -> None:
        group = dist.group.WORLD
        if self.collective == "all_reduce":
            group.allreduce_coalesced(self.wholes).wait()
        elif self.collective == "all_gather":
            group.allgather_into_tensor_coalesced(self.wholes, self.parts).wait()
        else:
            group.reduce_scatter_tensor_coalesced(self.parts, self.wholes).wait()

    def one_by_one(self) -> None:
        backend = dist.group.WORLD._get_backend(CPU)
        backend._start_coalescing()
        for whole, part in zip(self.wholes, self.parts, strict=True):
            if self.collective == "all_reduce":
                dist.all_reduce(whole, async_op=True)
            elif self.collective == "all_gather":
                dist.all_gather_into_tensor(whole, part, async_op=True)
            else:
                dist.reduce_scatter_tensor(part, whole, async_op=True)
        backend._end_coalescing().wait()

    def measure(self, rounds: int) -> dict[str, list[float]]:
        """Return milliseconds by name of the way."""
        times: dict[str, list[float]] = {"as_a_list": [], "one_by_one": []}
        gathers = self.collective == "all_gather"
        results = self.parts if self.collective == "reduce_scatter" else self.wholes
        for turn in range(rounds + 1):
            for way in times if turn % 2 else reversed(times):
                for tensor in [*self.wholes, *self.parts]:
                    tensor.fill_(1)
                if gathers:
                    for tensor in results:
                        tensor.zero_()
                dist.barrier()
                begin = time.perf_counter()
                getattr(self, way)()
                taken = time.perf_counter() - begin
                assert all((tensor == (1 if gathers else dist.get_world_size())).all() for tensor in results)
                if turn > 0:  # the first round warms up
                    times[way].append(taken * 1e3)
        return times


def run(rank: int, ranks: int, folder: str, apart: bool, cases: list[tuple[str, int]], rounds: int) -> None:
    torch.set_num_threads(1)
    if apart:
        os.environ |= {"BRAID_HOST": f"host-{rank}", "BRAID_LINKS": "assume"}
    dist.init_process_group("braid", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    for collective, kib in cases:
        times = Lists(collective, kib).measure(rounds)
        ratios = [a / b for a, b in zip(times["one_by_one"], times["as_a_list"], strict=True)]

        def summary(values: list[float]) -> dict[str, Any]:
            ends = [round(end, 2) for end in median_interval(values)]
            return {"median": round(median(values), 2), "interval": ends}

        if rank == 0:
            row = {"collective": collective, "ranks": ranks, "apart": apart, "kib": kib}
            row |= {"one by one, ms": summary(times["one_by_one"]), "as a list, ms": summary(times["as_a_list"])}
            (Path(folder) / f"{collective}.{kib}.json").write_text(json.dumps(row | {"ratio": summary(ratios)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collectives", nargs="+", default=COLLECTIVES, choices=COLLECTIVES)
    parser.add_argument("--kib", nargs="+", type=int, default=[0, 1, 16, 32, 64, 128], help="0: of 1 to 64")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "coalesced.json")
    arguments = parser.parse_args()
    cases = [(collective, kib) for collective in arguments.collectives for kib in arguments.kib]
    rows = []
    for apart in (False, True):
        for ranks in (2, 4):
            with tempfile.TemporaryDirectory() as folder:
                torch.multiprocessing.spawn(run, (ranks, folder, apart, cases, arguments.rounds), nprocs=ranks)
                rows += [json.loads((Path(folder) / f"{c}.{kib}.json").read_text()) for c, kib in cases]
    report = {"processor": cpu_model(), "torch": torch.__version__, "commit": _core.commit, "rows": rows}
    arguments.json.write_text(json.dumps({**report, "rounds": arguments.rounds}, indent=1) + "\n")
    for row in rows:
        cells = [row[name] for name in ("one by one, ms", "as a list, ms", "ratio")]
        shown = [f"{cell['median']:.1f} ({cell['interval'][0]:.1f}-{cell['interval'][1]:.1f})" for cell in cells]
        size = f"{row['kib']} KiB" if row["kib"] else "1-64 KiB"
        place = "TCP" if row["apart"] else "one host"
        print(f"| {row['collective']} | {row['ranks']} | {place} | {size} | {' | '.join(shown)} |")

# SPDX-License-Identifier: Apache-2.0
"""What `auto` costs where it has little to gain: steps of plain DDP, and of DDP with the hook, in turns."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from braid._bench.intervals import median_interval

FOLDER = Path(os.path.relpath(Path(__file__).parent))  # of the checkout, wherever that is
TRIED = 40  # steps with `auto` before anything is counted: the warm-up, and the trial of what it chose
STEPS = 5  # of one contestant in a row, of which the first is left out: caches have the other's model
PLACES = {"one host": "", "100 Gbit/s": "2x100gbit", "10 Gbit/s": "2x10gbit", "1 Gbit/s": "2x1gbit"}
BATCHES = {"cnn": 32, "25m": 2, "layers": 32}  # small: what is to be seen is communication


def rank_main(folder: Path, model_name: str, rounds: int) -> None:
    """Be one rank; rank 0 writes the seconds of every step."""
    import torch
    import torch.distributed as dist
    from braid.hooks import AutoState, auto
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("braid", store=dist.FileStore(str(folder / "store")), rank=rank, world_size=size)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images = torch.randn(BATCHES[model_name], 1, 8, 8)
    labels = torch.randint(10, (BATCHES[model_name],))
    models = {name: DistributedDataParallel(make_model(model_name)) for name in ("plain", "auto")}
    state = AutoState(models["auto"], "auto")
    models["auto"].register_comm_hook(state, auto)
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=0.001) for name, model in models.items()}
    seconds: dict[str, list[list[float]]] = {name: [] for name in models}

    def steps(name: str, count: int) -> list[float]:
        row = []
        for _ in range(count):
            dist.barrier()
            began = time.perf_counter()
            optimizers[name].zero_grad()
            cross_entropy(models[name](images), labels).backward()
            optimizers[name].step()
            row.append(time.perf_counter() - began)
        return row

    steps("auto", TRIED)
    for turn in range(rounds + 1):
        for name in sorted(models, reverse=turn % 2 == 0):
            row = steps(name, STEPS)
            if turn > 0:
                seconds[name].append(row[1:])
    if rank == 0:
        codecs = sorted({row.codec for row in state.report()})
        reason = next((row.reason for row in state.report() if "ms" in row.reason), "")
        told = {"seconds": seconds, "codecs": codecs, "reason": reason}
        (folder / "told.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


def make_model(name: str) -> Any:
    """Return the small CNN, the one of 25 million parameters, or many small layers, which are mostly overhead."""
    if name != "layers":
        import training

        return training.make_model(name)
    from torch import nn

    blocks = [layer for _ in range(30) for layer in (nn.Linear(128, 128), nn.LayerNorm(128), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), *blocks, nn.Linear(128, 10))


def measure(hosts: str, model: str, rounds: int) -> dict[str, Any]:
    """Run two ranks, on one host or in a lab, one on each."""
    from braid.lab import Job, Lab, environments

    with TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--rank-in", folder, model, str(rounds)]
        if hosts:
            with Lab(hosts) as lab, Job(environments(lab, [1, 1]), command, stderr=subprocess.PIPE) as job:
                codes = job.wait(600)
                says = [rank.stderr.read().decode() for rank in job.ranks if rank.stderr]
        else:
            places = [{**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
            ranks = [subprocess.Popen(command, env=place, stderr=subprocess.PIPE) for place in places]
            says = [rank.communicate(timeout=600)[1].decode() for rank in ranks]
            codes = [rank.returncode for rank in ranks]
        if any(codes):
            raise SystemExit("\n".join(says))
        told: dict[str, Any] = json.loads((Path(folder) / "told.json").read_text())
    own = {name: [median(row) for row in rows] for name, rows in told["seconds"].items()}
    ratios = [auto / plain for auto, plain in zip(own["auto"], own["plain"], strict=True)]
    return {
        "codecs": told["codecs"],
        "reason": told["reason"],
        "plain_ms": round(median(own["plain"]) * 1e3, 3),
        "auto_ms": round(median(own["auto"]) * 1e3, 3),
        "auto_over_plain": round(median(ratios), 4),
        "interval": [round(end, 4) for end in median_interval(ratios)],
    }


def main() -> None:
    """Measure, print a table, and bring its rows into the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(BATCHES))
    parser.add_argument("--places", default=",".join(PLACES))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, default=FOLDER / "never_worse.json")
    parser.add_argument("--rank-in", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank_in:
        folder, model, rounds = asked.rank_in
        rank_main(Path(folder), model, int(rounds))
        return
    rows = json.loads(asked.out.read_text())["rows"] if asked.out.exists() else []
    for place in asked.places.split(","):
        for model in asked.models.split(","):
            row = {"place": place, "model": model, "rounds": asked.rounds}
            row.update(measure(PLACES[place], model, asked.rounds))
            rows = [other for other in rows if (other["place"], other["model"]) != (place, model)] + [row]
            low, high = row["interval"]
            print(
                f"| {place} | {model} | {', '.join(row['codecs'])} | {row['plain_ms']:.2f} ms | "
                f"{row['auto_ms']:.2f} ms | {row['auto_over_plain']:.3f} ({low:.3f}-{high:.3f}) |",
                flush=True,
            )
            asked.out.write_text(json.dumps({"steps": STEPS, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

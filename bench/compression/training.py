# SPDX-License-Identifier: Apache-2.0
"""Training between slow hosts: time to an accuracy, final accuracy, and what a step waits for, by contestant."""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FOLDER = Path(os.path.relpath(Path(__file__).parent))  # of the checkout, wherever that is
# Contestant -> backend and hook: a policy of braid's, or a hook of torch's.
CONTESTANTS = {
    "gloo": ("gloo", ""),
    "gloo fp16": ("gloo", "torch fp16"),
    "gloo PowerSGD": ("gloo", "torch power_sgd"),
    "braid": ("braid", ""),
    "braid auto": ("braid", "auto"),
    "braid int8": ("braid", "int8"),
    "braid auto:aggressive": ("braid", "auto:aggressive"),
    "braid sign": ("braid", "sign"),
    "braid forgetful sign": ("braid", "sign without feedback"),
    "braid power_sgd:4": ("braid", "power_sgd:4"),
}
WARMUP_STEPS = {"cnn": 10, "25m": 2}  # in which all is exact, by model
BATCH = 32  # of each rank


def rank_main(
    folder: Path, model_name: str, contestant: str, seed: int, epochs: int, warmup: int, decays: bool
) -> None:
    """Be one rank of a training run; rank 0 writes what it saw."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    backend, hook = CONTESTANTS[contestant]
    store = dist.FileStore(str(folder / "store"))
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    train, test = digits()
    # With several buckets torch's PowerSGD starts operations from callbacks, in orders that differ between ranks,
    # and hangs on Gloo.
    options = {"bucket_cap_mb": 1000} if hook == "torch power_sgd" else {}
    model = DistributedDataParallel(make_model(model_name), **options)
    state = register(model, hook, warmup)
    optimizer = make_optimizer(model)
    total = epochs * (len(train[0]) // (BATCH * size))
    slower = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 + 0.5 * math.cos(math.pi * min(step / total, 1)) if decays else 1.0
    )
    order = torch.Generator().manual_seed(seed)
    seconds, steps, curve = 0.0, [], []
    for _ in range(epochs):
        shuffled = torch.randperm(len(train[0]), generator=order)
        for batch in shuffled.split(BATCH * size):
            if len(batch) < BATCH * size:
                continue
            mine = batch[rank::size]
            steps.append(timed_step(model, optimizer, train[0][mine], train[1][mine]))
            slower.step()
        seconds = sum(steps)
        with torch.no_grad():
            right = (model.module(test[0]).argmax(1) == test[1]).float().mean().item()
        curve.append({"seconds": seconds, "accuracy": right})
    predicted = state.predict() if state else None  # with the other ranks
    pairs = paired_steps(model, options, train[0][:BATCH], train[1][:BATCH], statistics.median(steps[-10:]))
    if rank == 0:
        told = {"curve": curve, "steps_s": steps, "pairs_s": pairs}
        told["predicted_s"] = {"exact": predicted.exact_s, "planned": predicted.planned_s} if predicted else None
        (folder / "told.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


def timed_step(model: Any, optimizer: Any, images: Any, labels: Any) -> float:
    """Take one step of training, when all ranks have come; return its seconds."""
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy

    dist.barrier()
    began = time.perf_counter()
    optimizer.zero_grad()
    cross_entropy(model(images), labels).backward()
    optimizer.step()
    return time.perf_counter() - began


def paired_steps(
    model: Any, options: dict[str, Any], images: Any, labels: Any, step_s: float
) -> list[list[float]]:
    """Return the seconds of steps, and of those after each whose gradients pass through DDP but go to nobody.

    Both on the slowest rank. There are as many as half a minute holds of `step_s`, but 12 to 60.
    """
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    def keep(_, bucket):  # type: ignore[no-untyped-def]  # DDP wants to see its own types there, or none
        kept: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        kept.set_result(bucket.buffer())
        return kept

    alone = DistributedDataParallel(copy.deepcopy(model.module), **options)
    alone.register_comm_hook(None, keep)
    optimizers = {one: make_optimizer(one) for one in (model, alone)}
    count = torch.tensor(min(max(30 / step_s, 12), 60))
    dist.broadcast(count, 0)
    seconds = torch.tensor(
        [[timed_step(one, optimizers[one], images, labels) for one in (model, alone)] for _ in range(int(count))]
    )
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    later = seconds[2:]  # in the first ones buckets are sorted anew
    return [[float(step) for step in pair] for pair in later]


def digits() -> list[tuple[Any, Any]]:
    """Return images and labels of scikit-learn's digits, to train on and to test with."""
    import torch
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    split = len(labels) * 4 // 5
    return [(images[part], labels[part]) for part in (order[:split], order[split:])]


def make_model(name: str) -> Any:
    """Return the model: a small CNN, or one with 25 million parameters, nearly all in two matrices."""
    from torch import nn

    width = {"cnn": 512, "25m": 4500}[name]
    middle = [] if name == "cnn" else [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(64 * 4 * 4, width), nn.ReLU(), *middle),
        nn.Linear(width, 10),
    )


def make_optimizer(model: Any) -> Any:
    """Return SGD with momentum."""
    import torch

    return torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)


def register(model: Any, hook: str, warmup: int) -> Any:
    """Give DDP the contestant's hook; return its state if it is one of braid's."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    state = None
    if hook == "torch fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "torch power_sgd":
        begin = max(warmup, 2)
        theirs = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=begin)
        model.register_comm_hook(theirs, powerSGD_hook.powerSGD_hook)
    elif hook:
        from braid.hooks import AutoState, auto

        forgets = hook.endswith(" without feedback")
        state = AutoState(model, hook.removesuffix(" without feedback") + f",warmup:{warmup}")

        def forgetful(kept: AutoState, bucket: Any) -> Any:
            kept.reset()
            return auto(kept, bucket)

        forgetful.__annotations__.clear()  # DDP wants to see its own type there, or nothing
        model.register_comm_hook(state, forgetful if forgets else auto)
    return state


def train(hosts: str, *settings: object) -> dict[str, Any]:
    """Train once in a lab, one rank per host, with what rank_main() takes after the folder."""
    from braid.lab import Job, Lab, environments

    with Lab(hosts) as lab, TemporaryDirectory() as folder:
        places = environments(lab, [1] * len(lab.hosts))
        command = [sys.executable, __file__, "--rank-in", folder, *map(str, settings)]
        with Job(places, command, stderr=subprocess.PIPE) as job:
            codes = job.wait(1200)
            says = [rank.stderr.read().decode() for rank in job.ranks if rank.stderr]
        if any(codes):
            raise SystemExit("\n".join(says))
        told: dict[str, Any] = json.loads((Path(folder) / "told.json").read_text())
    return told


def summary(told: dict[str, Any], target: float, warmup: int) -> dict[str, Any]:
    """Return what is shown of one run."""
    reached = [point["seconds"] for point in told["curve"] if point["accuracy"] >= target]
    later = told["steps_s"][warmup + 2 :]
    return {
        "accuracy": told["curve"][-1]["accuracy"],
        "seconds": told["curve"][-1]["seconds"],
        "to_target_s": reached[0] if reached else None,
        "step_s": statistics.median(later),
        "communication_s": max(statistics.median(step - alone for step, alone in told["pairs_s"]), 0.0),
        "predicted_s": told["predicted_s"],
    }


def show(rows: list[dict[str, Any]], target: float) -> None:
    """Print the table: medians over seeds."""
    print(
        f"{'':>24} {'accuracy':>17} {f'to {target:.0%}':>8} {'step':>9} {'waits':>9} {'less':>6} "
        f"{'predicted':>10} {'less':>6}"
    )
    first = statistics.median([row["communication_s"] for row in rows if row["contestant"] == "braid"] or [0.0])
    for name in dict.fromkeys(row["contestant"] for row in rows):
        own = [row for row in rows if row["contestant"] == name]
        accuracies = [row["accuracy"] for row in own]
        reached = [row["to_target_s"] for row in own if row["to_target_s"] is not None]
        waits = statistics.median(row["communication_s"] for row in own)
        predicted = [row["predicted_s"] for row in own if row["predicted_s"]]
        planned = statistics.median(row["planned"] for row in predicted) if predicted else None
        gain = statistics.median(row["exact"] / row["planned"] for row in predicted) if predicted else None
        print(
            f"{name:>24} {min(accuracies):>6.1%} to {max(accuracies):>6.1%} "
            f"{(f'{statistics.median(reached):.1f} s' if len(reached) == len(own) else '-'):>8} "
            f"{statistics.median(row['step_s'] for row in own) * 1e3:>6.0f} ms {waits * 1e3:>6.0f} ms "
            f"{(f'{first / waits:.1f}x' if first and waits else '-'):>6} "
            f"{(f'{planned * 1e3:.0f} ms' if planned else '-'):>10} {(f'{gain:.1f}x' if gain else '-'):>6}"
        )


def plot(rows: list[dict[str, Any]], path: Path, title: str) -> None:
    """Draw accuracy over time, the first seed of each contestant."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for name in dict.fromkeys(row["contestant"] for row in rows):
        curve = next(row for row in rows if row["contestant"] == name)["curve"]
        axes.plot([p["seconds"] for p in curve], [p["accuracy"] for p in curve], marker=".", label=name)
    axes.set(xlabel="seconds of training", ylabel="test accuracy", title=title, xscale="log")
    axes.legend()
    figure.savefig(path, dpi=110, bbox_inches="tight")


def main() -> None:
    """Train with every contestant and seed in turn; print, draw, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="4x200mbit", help="of the lab")
    parser.add_argument("--model", choices=["cnn", "25m"], default="cnn")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--target", type=float, default=0.95)
    parser.add_argument("--contestants", default=",".join(CONTESTANTS))
    parser.add_argument("--out", help="name of the files, without ending")
    parser.add_argument("--warmup", type=int, help="steps at the beginning in which all is exact")
    parser.add_argument("--decay", action="store_true", help="the learning rate falls to 0, along a cosine")
    parser.add_argument("--rank-in", nargs=7, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank_in:
        folder, model, contestant, *numbers = asked.rank_in
        seed, epochs, warmup, decays = (int(number) for number in numbers)
        rank_main(Path(folder), model, contestant, seed, epochs, warmup, bool(decays))
        return
    warmup = WARMUP_STEPS[asked.model] if asked.warmup is None else asked.warmup
    rows = []
    for seed in range(asked.seeds):
        for name in asked.contestants.split(","):
            told = train(asked.hosts, asked.model, name, seed, asked.epochs, warmup, int(asked.decay))
            rows.append(
                {
                    "contestant": name,
                    "seed": seed,
                    **summary(told, asked.target, warmup),
                    "curve": told["curve"],
                }
            )
    show(rows, asked.target)
    out = FOLDER / (asked.out or f"training_{asked.model}")
    settings = {"hosts": asked.hosts, "model": asked.model, "epochs": asked.epochs}
    told = {**settings, "warmup": warmup, "decay": asked.decay, "rows": rows}
    out.with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n")
    plot(rows, out.with_suffix(".png"), f"{asked.model}, {asked.hosts}")


if __name__ == "__main__":
    main()

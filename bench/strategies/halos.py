# SPDX-License-Identifier: Apache-2.0
"""Two regions with a slow link between them: time to an accuracy, beside synchronous training (Kim et al. 2025).

A region is an emulated host with two workers, which share memory. Its card is slow. All methods train the same
network on scikit-learn's digits, in the same order, for as many steps. Computing is a sleep beside the small
network. The workers of the second region may sleep longer. Rank 0 looks at the centre every few steps, or at its
own model if there is no centre. These looks do not count as time. Prints a table; --json writes the numbers, with
curves. Needs root, as `braid lab` does.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import statistics
import time
from pathlib import Path
from typing import Any

import trainings

REGIONS, PER_REGION = 2, 2
WORKERS = REGIONS * PER_REGION
EVERY, ROUNDS, LOOK = 5, 4, 5  # H, K, and steps between two looks
DDP, GLOO = "DDP on braid", "DDP on Gloo"
IN_GROUPS = {"sync_every": (EVERY, EVERY * ROUNDS), "groups": "host"}
# From the authors' script. Its rates, 0.2 and 0.15, are for the change of one of four; here they are for the mean.
HALOS = {**IN_GROUPS, "asynchronous": True, "group_lr": 0.8, "group_momentum": 0.9, "outer_lr": 0.6}
HALOS |= {"outer_momentum": 0.5, "fragment_update_alpha": 0.75}
# Name -> strategy and options.
STRATEGIES: dict[str, tuple[str, dict[str, Any]]] = {
    "LocalSGD": ("LocalSGD", {"sync_every": EVERY * ROUNDS}),
    "LocalSGD, two periods": ("LocalSGD", IN_GROUPS),
    "DiLoCo": ("DiLoCo", {"sync_every": EVERY * ROUNDS}),
    "DiLoCo, asynchronous": ("DiLoCo", {"sync_every": EVERY * ROUNDS, "asynchronous": True}),
    "groups, means only": (
        "DiLoCo",
        {**IN_GROUPS, "asynchronous": True, "outer_lr": 1.0, "outer_momentum": 0.0},
    ),
    "HALoS": ("DiLoCo", HALOS),
    "HALoS, in the background": ("DiLoCo", {**HALOS, "fragment_sync_delay": EVERY}),
}
METHODS = [DDP, GLOO, *STRATEGIES]
# What the paper compares: synchronous training, without and with local steps, asynchronous local steps, and HALoS.
SYNCHRONOUS, ASYNCHRONOUS = (DDP, "DiLoCo"), ("DiLoCo, asynchronous",)
OURS = ("HALoS", "HALoS, in the background")
SHORT = [*SYNCHRONOUS, *ASYNCHRONOUS, *OURS]
CLAIMS = {SYNCHRONOUS: 7.5, ASYNCHRONOUS: 2.1}  # the abstract: up to so many times faster, on language models


def train(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train with a method; return what this worker saw."""
    import braid.strategies as bs
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.functional import cross_entropy

    torch.manual_seed(seed)
    images, labels, split = trainings.data()
    bare = trainings.network()
    optimizer = torch.optim.AdamW(bare.parameters(), lr=trainings.RATE)
    model, strategy = bare, None
    if name in (DDP, GLOO):
        model = nn.parallel.DistributedDataParallel(bare, process_group=gloo() if name == GLOO else None)
    else:
        kind, options = STRATEGIES[name]
        strategy = getattr(bs, kind)(bare, optimizer, **options)
    sleep_s = arguments.compute_s * (arguments.slow if dist.get_rank() >= PER_REGION else 1.0)
    dist.barrier()
    curve: list[tuple[float, float]] = []  # of rank 0: seconds and accuracy in %
    looking_s, begun = 0.0, time.perf_counter()
    for step, x, y in trainings.batches(seed, arguments.steps):
        time.sleep(sleep_s)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        if step % LOOK == 0 and dist.get_rank() == 0:
            at = time.perf_counter()
            with strategy.centre() if strategy else contextlib.nullcontext(), torch.no_grad():
                right = (bare(images[split:]).argmax(1) == labels[split:]).float().mean().item()
            curve.append((at - begun - looking_s, 100 * right))
            looking_s += time.perf_counter() - at
    seconds = time.perf_counter() - begun - looking_s
    waited_s = strategy.stats()["exposed_us"] / 1e6 if strategy else 0.0
    if strategy:
        strategy.close()
    dist.barrier()
    return {"seconds": seconds, "waited_s": waited_s, "curve": curve}


@functools.cache
def gloo() -> Any:
    """Return a process group of Gloo; all ranks ask for it in the same training."""
    import torch.distributed as dist

    return dist.new_group(backend="gloo")


def time_to(curve: list[list[float]], target: float) -> float:
    """Return the seconds until the mean of three looks has the target accuracy; infinite if it never has."""
    for place in range(2, len(curve)):
        if statistics.mean(look[1] for look in curve[place - 2 : place + 1]) >= target:
            return curve[place][0]
    return float("inf")


def table(found: dict[str, list[Any]], steps: int, target: float) -> list[str]:
    """Return a Markdown table: medians over seeds, with their range. Others are compared with the first method."""
    times = {name: [time_to(told[0]["curve"], target) for told in runs] for name, runs in found.items()}
    first = statistics.median(next(iter(times.values())))
    lines = [
        f"| method | seconds to {target:g} % | times faster | time of a step | waited | accuracy at the end |",
        "|---|---|---|---|---|---|",
    ]
    for name, runs in found.items():
        mid, step_s = (
            statistics.median(times[name]),
            statistics.median(told[0]["seconds"] for told in runs) / steps,
        )
        waited = statistics.median(told[0]["waited_s"] / told[0]["seconds"] for told in runs)
        accuracies = " ".join(f"{told[0]['curve'][-1][1]:.1f}" for told in runs)
        reached = f"{mid:.2f} ({min(times[name]):.2f} to {max(times[name]):.2f}) | {first / mid:.2f}"
        lines.append(
            f"| {name} | {reached if mid < float('inf') else 'not reached |'} | {1000 * step_s:.0f} ms "
            f"| {f'{100 * waited:.0f} %' if name in STRATEGIES else ''} | {accuracies} |"
        )
    return lines


def beside_the_paper(found: dict[str, list[Any]], target: float) -> list[str]:
    """Return a line for each claim of the paper: the ratio that was measured, for each rival, beside it."""
    median = {
        name: statistics.median(time_to(told[0]["curve"], target) for told in runs) for name, runs in found.items()
    }
    best_s = min((median[name] for name in OURS if name in median), default=float("inf"))
    lines = []
    for rivals, claim in CLAIMS.items():
        kind = "synchronous" if rivals == SYNCHRONOUS else "asynchronous"
        for name in rivals:
            if name not in median:
                continue
            if best_s == float("inf"):
                told = f"HALoS did not reach {target:g} %"
            elif median[name] == float("inf"):
                told = f"HALoS reached {target:g} % and {name} did not"
            else:
                told = f"HALoS was {median[name] / best_s:.2f} times as fast as {name} to {target:g} %"
            lines.append(f"{told}; the paper says up to {claim} times the {kind} methods")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--mbit", type=float, default=20.0, help="rate of each region's card, each way")
    parser.add_argument("--compute-s", type=float, default=0.02, help="the sleep in each step")
    parser.add_argument("--slow", type=float, default=1.0, help="the second region sleeps so many times longer")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--target", type=float, default=95.0, help="accuracy in %%")
    parser.add_argument("--limit-s", type=float, default=240.0, help="the most seconds of all trainings")
    parser.add_argument(
        "--methods", default="", help='separated by semicolons; those that the paper compares by default; or "all"'
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rank-writes", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.methods == "all":
        arguments.methods = ";".join(METHODS)
    if arguments.rank_writes:
        return trainings.train_all(lambda name, seed: train(name, seed, arguments), SHORT, arguments)
    names = ["seeds", "steps", "compute-s", "slow", "methods"]
    hosts = f"{REGIONS}x{arguments.mbit:g}mbit"
    found = trainings.in_lab(hosts, [PER_REGION] * REGIONS, __file__, arguments, names)
    print("\n".join(table(found, arguments.steps, arguments.target)))
    print("\n".join(beside_the_paper(found, arguments.target)))
    if arguments.json:
        from braid._bench.machine import facts

        told = {name: value for name, value in vars(arguments).items() if name not in ("json", "rank_writes")}
        arguments.json.write_text(json.dumps({"machine": facts.facts(), "options": told, "found": found}) + "\n")


if __name__ == "__main__":
    main()

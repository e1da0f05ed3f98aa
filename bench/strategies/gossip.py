# SPDX-License-Identifier: Apache-2.0
"""Repeats what AD-PSGD, SGP and GossipGraD claim: one slow worker does not slow the others.

Four workers train on digits for some seconds. A step sleeps, and that of the last worker five times as long.
Beside gossip stand workers that do not talk at all, and a ring all-reduce of gradients in each step. For each
method the table has the samples a second of the fast workers and of all, and how far workers are apart. It has the
accuracy of the mean, or of rank 0 where workers do not talk, against time and against samples.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "multiprocess"))

WORKERS, BATCH = 4, 32
STEP_S, SLOW_TIMES = 0.02, 5
ALONE, RING = "alone", "ring all-reduce"
METHODS: dict[str, dict[str, Any]] = {
    ALONE: {},
    RING: {},
    "symmetric, bipartite": {},
    "symmetric, auto": {"graph": "auto"},
    "push_sum, exponential": {"mode": "push_sum"},
    "dissemination": {"mode": "dissemination"},
    "pull, random": {"mode": "pull"},
}


def train(rank: int, seed: int, method: str, seconds: float) -> dict[str, Any]:
    """Train as one worker, and return what it saw after a third of the time, and at the end."""
    import braid.strategies as bs
    import torch
    import torch.distributed as dist
    from digits import accuracy, batches, network
    from torch.nn.functional import cross_entropy

    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    strategy = None if method in (ALONE, RING) else bs.Gossip(model, optimizer, seed=seed, **METHODS[method])
    sleep_s = STEP_S * (SLOW_TIMES if rank == WORKERS - 1 else 1)
    ends = torch.zeros(1)
    found: dict[str, Any] = {"marks": []}
    steps, paused_s = 0, 0.0

    def look() -> None:
        if strategy is None:
            found["marks"].append((steps, accuracy(model)))
            return
        with strategy.centre():
            found["marks"].append((steps, accuracy(model)))

    dist.barrier()
    begun = time.perf_counter()
    for images, labels in batches(rank, WORKERS, 10**6):
        passed_s = time.perf_counter() - begun - paused_s
        if method == RING:  # all must end in the same step
            ends[0] = float(passed_s > seconds) + float(passed_s > seconds / 3 and not found["marks"]) / 16
            dist.all_reduce(ends)
            is_third, is_over = ends.item() % 1 > 0, ends.item() >= 1
        else:
            is_third, is_over = passed_s > seconds / 3 and not found["marks"], passed_s > seconds
        if is_third:
            pause = time.perf_counter()
            look()
            paused_s += time.perf_counter() - pause
        if is_over:
            break
        time.sleep(sleep_s)
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        if method == RING:
            gradients = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
            dist.all_reduce(gradients)
            places = itertools.accumulate((p.numel() for p in model.parameters()), initial=0)
            for parameter, place in zip(model.parameters(), places, strict=False):
                part = gradients[place : place + parameter.numel()]
                parameter.grad = part.view_as(parameter) / WORKERS
        optimizer.step()
        steps += 1
    found["seconds"] = time.perf_counter() - begun - paused_s
    if strategy is not None:
        strategy.settle()
    dist.barrier()
    look()
    if strategy is not None:
        stats = strategy.stats()
        found["exposed"] = stats["exposed_us"] / 1e6 / found["seconds"]
        found["exchanges"], found["skipped"] = stats["exchanges"], stats["skipped"]
        found["bytes_per_exchange"] = stats["sent_bytes"] / max(1, stats["exchanges"])
    vector = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    mean = vector.clone()
    dist.all_reduce(mean)
    mean /= WORKERS
    found["apart"] = ((vector - mean).norm() / mean.norm()).item()
    dist.barrier()
    if strategy is not None:
        strategy.close()
    return found


def work(rank: int, folder: str, seeds: int, seconds: float, methods: list[str], results: Any) -> None:
    """Train by every method with every seed; methods take turns, so that a slower machine slows all of them."""
    import braid  # noqa: F401
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["BRAID_ALGORITHM"] = "ring"
    dist.init_process_group("braid", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORKERS)
    for seed in range(seeds):
        for method in methods:
            told: list[Any] = [None] * WORKERS
            dist.all_gather_object(told, train(rank, seed, method, seconds))
            if rank == 0:
                results.put((method, summary(told)))
    dist.destroy_process_group()


def summary(told: list[dict[str, Any]]) -> dict[str, float]:
    """Return what one training came to. Samples are those of all workers, accuracies rank 0's look at the mean."""
    rates = [BATCH * each["marks"][-1][0] / each["seconds"] for each in told]
    return {
        "fast": statistics.mean(rates[:-1]),
        "all": sum(rates),
        "apart": statistics.mean(each["apart"] for each in told),
        "exposed": statistics.mean(each.get("exposed", 0.0) for each in told),
        "exchanges": sum(each.get("exchanges", 0) for each in told),
        "bytes_per_exchange": max(each.get("bytes_per_exchange", 0) for each in told),
        "third_samples": sum(BATCH * each["marks"][0][0] for each in told),
        "third_accuracy": told[0]["marks"][0][1],
        "samples": sum(BATCH * each["marks"][-1][0] for each in told),
        "accuracy": told[0]["marks"][-1][1],
    }


def run(seeds: int, seconds: float, methods: list[str]) -> dict[str, list[dict[str, float]]]:
    """Return the summaries of all trainings, by method."""
    context = multiprocessing.get_context("spawn")
    results, runs = context.Queue(), {method: [] for method in methods}
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(target=work, args=(rank, folder, seeds, seconds, methods, results), daemon=True)
            for rank in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        for _ in range(seeds * len(methods)):
            method, found = results.get(timeout=240 + 5 * seconds)
            runs[method].append(found)
        for worker in workers:
            worker.join()
    return runs


def table(runs: dict[str, list[dict[str, float]]]) -> list[str]:
    """Return a Markdown table of medians over seeds."""
    lines = [
        "| Method | Samples/s of a fast worker | Over alone | Samples/s of all | Averaging | Apart "
        "| Accuracy after a third of the time | At the end |",
        "|---|---|---|---|---|---|---|---|",
    ]
    alone = statistics.median(each["fast"] for each in runs[ALONE])
    for method, found in runs.items():
        mid = {name: statistics.median(each[name] for each in found) for name in found[0]}
        lines.append(
            f"| {method} | {mid['fast']:.0f} | {mid['fast'] / alone:.2f}x | {mid['all']:.0f} "
            f"| {100 * mid['exposed']:.0f} % | {100 * mid['apart']:.1f} % "
            f"| {100 * mid['third_accuracy']:.1f} % of {mid['third_samples']:.0f} samples "
            f"| {100 * mid['accuracy']:.1f} % of {mid['samples']:.0f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="how long each training takes")
    parser.add_argument("--methods", default="", help="separated by semicolons; all by default")
    parser.add_argument("--json", type=Path, help="Write the numbers there.")
    options = parser.parse_args()
    named = options.methods.split(";") if options.methods else list(METHODS)
    runs = run(options.seeds, options.seconds, [ALONE, *(method for method in named if method != ALONE)])
    print("\n".join(table(runs)))
    if options.json:
        from braid._bench.machine import facts

        options.json.write_text(json.dumps({"machine": facts.facts(), "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()

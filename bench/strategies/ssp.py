# SPDX-License-Identifier: Apache-2.0
"""Repeats the claim of SSP (Ho et al. 2013): where stragglers change, a bound on staleness loses little time.

Workers train on digits. A step sleeps, and now and then a worker sleeps six times as long. All train the same
number of steps. For each mode the table has updates a second, the share of time that workers waited, staleness and
accuracy.
"""

import argparse
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "multiprocess"))

WORKERS, EPOCHS = 4, 10
STEP_S, SLOW_TIMES, SLOW_SHARE = 0.02, 6, 0.1
MODES: dict[str, dict[str, Any]] = {
    "sync": {"mode": "sync"},
    **{f"ssp, staleness {bound}": {"mode": "ssp", "staleness": bound} for bound in (0, 1, 3, 10)},
    "async": {"mode": "async"},
}


def train(rank: int, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """Train as one worker, and return what it saw."""
    import braid.strategies as bs
    import torch
    import torch.distributed as dist
    from digits import accuracy, batches, network
    from torch.nn.functional import cross_entropy

    torch.manual_seed(seed)
    model, straggler = network(), random.Random(1000 * seed + rank)
    # The mean of sync does the work of as many updates, so its rate is as many times larger (Goyal et al. 2017).
    rate = 0.02 * (WORKERS if options["mode"] == "sync" else 1)
    with bs.ParameterServer(model, torch.optim.SGD, lr=rate, momentum=0.5, **options) as optimizer:
        dist.barrier()
        begun = time.perf_counter()
        for images, labels in batches(rank, WORKERS, EPOCHS):
            time.sleep(STEP_S * (SLOW_TIMES if straggler.random() < SLOW_SHARE else 1))
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
        seconds = time.perf_counter() - begun
        dist.barrier()
        told = optimizer.stats()
        with optimizer.centre():
            found = accuracy(model)
    return {
        "seconds": seconds,
        "steps": told["steps"],
        "waited": told["exposed_us"] / 1e6 / seconds,
        "staleness": told["staleness"],
        "accuracy": found,
    }


def work(rank: int, folder: str, seeds: int, results: Any) -> None:
    """Train in every mode with every seed; modes take turns, so that a slower machine slows all of them."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORKERS)
    for seed in range(seeds):
        for mode, options in MODES.items():
            told: list[Any] = [None] * WORKERS
            dist.all_gather_object(told, train(rank, seed, options))
            if rank == 0:
                results.put((mode, summary(told)))
    dist.destroy_process_group()


def summary(told: list[dict[str, Any]]) -> dict[str, float]:
    """Return what one training came to."""
    counts = told[0]["staleness"]  # of one shard; each worker pushes to every shard in every step
    return {
        "updates_per_s": sum(each["steps"] for each in told) / max(each["seconds"] for each in told),
        "waited": statistics.mean(each["waited"] for each in told),
        "staleness": sum(stale * count for stale, count in enumerate(counts)) / max(1, sum(counts)),
        "accuracy": told[0]["accuracy"],
    }


def run(seeds: int) -> dict[str, list[dict[str, float]]]:
    """Return the summaries of all trainings, by mode."""
    context = multiprocessing.get_context("spawn")
    results, runs = context.Queue(), {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(target=work, args=(rank, folder, seeds, results), daemon=True)
            for rank in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        for _ in range(seeds * len(MODES)):
            mode, found = results.get(timeout=120)
            runs[mode].append(found)
        for worker in workers:
            worker.join()
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="Write the numbers there.")
    options = parser.parse_args()
    runs = run(options.seeds)
    base = statistics.median(each["updates_per_s"] for each in runs["sync"])
    print("| mode | updates a second | over sync | waited | mean staleness | accuracy (all seeds) |")
    print("|---|---|---|---|---|---|")
    for mode, found in runs.items():
        rate, waited, stale = (
            statistics.median(each[name] for each in found) for name in ("updates_per_s", "waited", "staleness")
        )
        accuracies = " ".join(f"{100 * each['accuracy']:.1f}" for each in found)
        print(f"| {mode} | {rate:.0f} | {rate / base:.2f}x | {100 * waited:.0f} % | {stale:.1f} | {accuracies} |")
    if options.json:
        from braid._bench.machine import facts

        options.json.write_text(json.dumps({"machine": facts.facts(), "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()

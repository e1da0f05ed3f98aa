# SPDX-License-Identifier: Apache-2.0
"""Groups of unequal speed: synchronous, mixed and asynchronous training side by side (Kim 2020, Campos 2017).

Four workers compute for 0.25, 0.25, 0.5 and 1.0 units of time in a step, with equal batches. They sleep for the
most of it, because one machine has no four speeds. All methods train the same network on scikit-learn's digits, in
the same order of batches, on as many samples. Prints samples per second, accuracy against samples and against time
with its spread over seeds, and staleness beside the prediction sum(t_a / t_b). --json writes the numbers.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainings import data

TIMES = (0.25, 0.25, 0.5, 1.0)
MIXED = [[0, 1], [2], [3]]
METHODS = ("DDP on gloo", "DDP on braid", "one group", "mixed", "async")
WARMUP_STEPS = 20
TESTS = 6


@dataclass
class Run:
    """What one method did with one seed, on one worker."""

    method: str
    seed: int
    worker: int
    seconds: float
    samples: int  # of this worker
    steps: int
    staleness: float  # the mean over its pushes; 0 where it pushes nothing
    curve: list[tuple[int, float, float]]  # worker 0: samples of all, seconds, accuracy in %


def batches(worker: int, seed: int, size: int) -> Iterator[tuple[Any, Any]]:
    """Yield this worker's batches without end, in another order each epoch."""
    import torch

    images, labels, split = data()
    chance = torch.Generator().manual_seed(1000 * seed + 1)
    while True:
        order = torch.randperm(split, generator=chance)[worker :: len(TIMES)]
        for part in order.split(size)[:-1]:
            yield images[part], labels[part]


def accuracy(model: Any) -> float:
    import torch

    images, labels, split = data()
    model.eval()
    with torch.no_grad():
        right = (model(images[split:]).argmax(1) == labels[split:]).float().mean().item()
    model.train()
    return 100 * right


class Method:
    """A model with an optimizer, and who must take the same number of steps."""

    def __init__(self, name: str, seed: int, rate: float, braid_group: Any) -> None:
        import braid.strategies as bs
        import torch
        from torch import nn

        torch.manual_seed(seed)
        self.model: Any = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
        self.rate, self.is_ddp = rate, name.startswith("DDP")
        self.is_in_step = self.is_ddp or name == "one group"
        numbers = {"lr": rate, "momentum": 0.9}
        if self.is_ddp:
            group = braid_group if name.endswith("braid") else None
            self.run: Any = nn.parallel.DistributedDataParallel(self.model, process_group=group)
            self.optimizer: Any = torch.optim.SGD(self.model.parameters(), **numbers)
            return
        self.run = self.model
        if name == "async":
            self.optimizer = bs.ParameterServer(self.model, torch.optim.SGD, **numbers)
        else:
            groups = [list(range(len(TIMES)))] if name == "one group" else MIXED
            self.optimizer = bs.Hybrid(
                self.model, torch.optim.SGD, groups=groups, warmup_steps=WARMUP_STEPS, **numbers
            )

    def step(self, images: Any, labels: Any, step: int) -> None:
        from torch.nn.functional import cross_entropy

        if self.is_ddp:  # the linear rule with its warm-up, as the strategy has it
            self.optimizer.param_groups[0]["lr"] = self.rate * (
                1 + (len(TIMES) - 1) * min(1.0, step / WARMUP_STEPS)
            )
        self.optimizer.zero_grad()
        cross_entropy(self.run(images), labels).backward()
        self.optimizer.step()

    def staleness(self) -> float | None:
        """Return that of the last push; None where this worker pushes nothing."""
        return None if self.is_ddp else self.optimizer.stats().get("last_staleness")

    def final_accuracy(self) -> float:
        if self.is_ddp:
            return accuracy(self.model)
        with self.optimizer.centre():
            return accuracy(self.model)


def train(method: Method, worker: int, seed: int, given: argparse.Namespace, done: Any) -> Any:
    """Train until all workers together have had the samples. `done` counts them."""
    import torch.distributed as dist

    budget, size = given.samples, given.batch
    own_steps = budget // (size * len(TIMES))
    stale, curve, steps = [], [], 0
    dist.barrier()
    begun = time.perf_counter()
    for images, labels in batches(worker, seed, size):
        if steps == own_steps if method.is_in_step else done.value >= budget:
            break
        time.sleep(given.scale * TIMES[worker])
        method.step(images, labels, steps)
        steps += 1
        with done.get_lock():
            done.value += len(labels)
        if (last := method.staleness()) is not None:
            stale.append(last)
        if worker == 0 and done.value >= (len(curve) + 1) * budget // TESTS and len(curve) < TESTS - 1:
            curve.append((done.value, time.perf_counter() - begun, accuracy(method.model)))
    seconds = time.perf_counter() - begun
    if not method.is_ddp:
        method.optimizer.settle()
    dist.barrier()
    reached = method.final_accuracy()
    curve.append((done.value, seconds, reached))
    return seconds, steps, statistics.fmean(stale) if stale else 0.0, curve


def work(worker: int, folder: str, given: argparse.Namespace, counters: Any, results: Any) -> None:
    """Run all methods on one worker."""
    import braid  # noqa: F401
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", len(TIMES))
    dist.init_process_group("gloo", store=store, rank=worker, world_size=len(TIMES))
    braid_group = dist.new_group(backend="braid")
    numbers = iter(counters)
    for name in METHODS[:2]:  # what the first use costs is measured nowhere
        first = Method(name, 0, given.rate, braid_group)
        first.step(*next(batches(worker, 0, given.batch)), 0)
    for seed in range(given.seeds):
        for name in METHODS:
            method = Method(name, seed, given.rate, braid_group)
            seconds, steps, staleness, curve = train(method, worker, seed, given, next(numbers))
            if not method.is_ddp:
                method.optimizer.close()
            results.put(Run(name, seed, worker, seconds, steps * given.batch, steps, staleness, curve))
            dist.barrier()
    dist.destroy_process_group()


def measure(given: argparse.Namespace) -> list[Run]:
    context = multiprocessing.get_context("spawn")
    counters = [context.Value("q", 0) for _ in range(given.seeds * len(METHODS))]
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(target=work, args=(worker, folder, given, counters, results))
            for worker in range(len(TIMES))
        ]
        for process in workers:
            process.start()
        runs = [results.get(timeout=600) for _ in range(len(counters) * len(TIMES))]
        for process in workers:
            process.join()
    return runs


def spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def show_speed(runs: list[Run], given: argparse.Namespace) -> None:
    ideal = sum(1 / t for t in TIMES) / (len(TIMES) / max(TIMES))
    print(f"\nideal without waiting: {ideal:.2f} times synchronous; median (range) of {given.seeds} seeds\n")
    print("| method | samples/s | times DDP on gloo | accuracy in % |\n|---|---|---|---|")
    rates: dict[str, list[float]] = {}
    for name in METHODS:
        for seed in range(given.seeds):
            mine = [run for run in runs if (run.method, run.seed) == (name, seed)]
            rates.setdefault(name, []).append(sum(run.samples for run in mine) / max(run.seconds for run in mine))
    base = statistics.median(rates[METHODS[0]])
    for name in METHODS:
        final = [run.curve[-1][2] for run in runs if run.method == name and run.worker == 0]
        times = statistics.median(rates[name]) / base
        print(f"| {name} | {spread(rates[name], '.0f')} | {times:.2f} | {spread(final, '.1f')} |")


def show_curves(runs: list[Run]) -> None:
    print("\naccuracy in % after so many samples, and the seconds until then; medians over seeds\n")
    firsts = [run for run in runs if run.worker == 0]
    print("| method |" + "".join(f" {k + 1}/{TESTS} of the samples |" for k in range(TESTS)))
    print("|---" * (TESTS + 1) + "|")
    for name in METHODS:
        cells = []
        for k in range(TESTS):
            found = [run.curve[k] for run in firsts if run.method == name and len(run.curve) == TESTS]
            cells.append(
                f" {statistics.median(c[2] for c in found):.1f}, {statistics.median(c[1] for c in found):.1f} s |"
                if found
                else " |"
            )
        print(f"| {name} |" + "".join(cells))


def show_staleness(runs: list[Run]) -> None:
    print(
        "\nmean staleness of a group's pushes, beside sum(t_a / t_b): of the sleeping times, and of step rates\n"
    )
    print("| method | group | measured | by sleep | by step rate |\n|---|---|---|---|---|")
    for name, groups in (("mixed", MIXED), ("async", [[worker] for worker in range(len(TIMES))])):
        speakers = [group[0] for group in groups]
        mine = [run for run in runs if run.method == name]
        found = {s: statistics.fmean(run.staleness for run in mine if run.worker == s) for s in speakers}
        steps = {s: statistics.fmean(run.steps for run in mine if run.worker == s) for s in speakers}
        for group, speaker in zip(groups, speakers, strict=True):
            others = [other for other in speakers if other != speaker]
            by_sleep = sum(TIMES[speaker] / TIMES[other] for other in others)
            by_rate = sum(steps[other] / steps[speaker] for other in others)
            print(f"| {name} | {group} | {found[speaker]:.2f} | {by_sleep:.2f} | {by_rate:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1, help="seconds per unit of computing time")
    parser.add_argument("--samples", type=int, default=8448, help="of all workers together, in each run")
    parser.add_argument("--batch", type=int, default=32, help="samples of one worker in a step")
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate of one worker")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    print(
        f"{len(TIMES)} workers, {os.cpu_count()} cores, steps of {[given.scale * t for t in TIMES]} s", flush=True
    )
    runs = measure(given)
    show_speed(runs, given)
    show_curves(runs)
    show_staleness(runs)
    if given.json:
        given.json.write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Local steps beside DistributedDataParallel: bytes, peak rates, waiting, and learning by samples and by time.

Four emulated hosts with slow cards. All methods train the same network on scikit-learn's digits, on as many
samples in the same order. Computing is a sleep beside the small network. Bytes are those that the cards have sent,
so headers count; the peak is the most in one window of time. Prints a table; --json writes the numbers, with
curves. Needs root, as `braid lab` does.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import hivemind_rival
import torchft_rival
import trainings
from trainings import BATCH, HIDDEN, RATE, data

WORKERS, EVERY, FRAGMENTS = 4, 20, 5
WINDOW_S = 0.15  # of the peak; a round of all parameters fills it, and fragments are further apart
DDP, RIVAL = "DDP on braid", "torch's PostLocalSGDOptimizer"
# Name -> strategy and options.
STRATEGIES: dict[str, tuple[str, dict[str, Any]]] = {
    "LocalSGD": ("LocalSGD", {}),
    "DiLoCo": ("DiLoCo", {}),
    "DiLoCo, int4": ("DiLoCo", {"compression": "int4"}),
    "streaming": ("DiLoCo", {"num_fragments": FRAGMENTS}),
    "streaming, delay 1, alpha 0.5": (
        "DiLoCo",
        {"num_fragments": FRAGMENTS, "fragment_sync_delay": 1, "fragment_update_alpha": 0.5},
    ),
    "quorum of 3": ("DiLoCo", {"quorum": 3, "grace_s": 0.5}),
    "asynchronous": ("DiLoCo", {"asynchronous": True}),
}
RIVALS = {
    name: module.Rival
    for module in (torchft_rival, hivemind_rival)
    if module.is_installed()
    for name in module.KINDS
}
METHODS = [DDP, RIVAL, *RIVALS, *STRATEGIES]


class Card:
    """Counts what this host's card sends, and the most in one window of time."""

    def __init__(self) -> None:
        self._stops = threading.Event()
        self.begun = self.sent = self._last()
        self.peak = 0.0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> tuple[int, float]:
        """Return the bytes so far, and the peak in bytes per second."""
        self._stops.set()
        self._thread.join()
        return self._last() - self.begun, self.peak

    def _last(self) -> int:
        cards = (line.split(":") for line in Path("/proc/net/dev").read_text().splitlines()[2:])
        return sum(int(counters.split()[8]) for name, counters in cards if name.strip() != "lo")

    def _watch(self) -> None:
        last, at = self._last(), time.perf_counter()
        while not self._stops.wait(WINDOW_S):
            sent, now = self._last(), time.perf_counter()
            self.peak = max(self.peak, (sent - last) / (now - at))
            last, at = sent, now


class Method:
    """A model that is trained in one way."""

    def __init__(self, name: str) -> None:
        import braid.strategies as bs
        import torch
        from torch import nn
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
        from torch.distributed.optim import PostLocalSGDOptimizer

        self.model: Any = trainings.network()
        self.optimizer: Any = torch.optim.AdamW(self.model.parameters(), lr=RATE)
        self.strategy: Any = None
        self.rival: Any = None
        if name == DDP:
            self.model = nn.parallel.DistributedDataParallel(self.model)
        elif name == RIVAL:
            averager = PeriodicModelAverager(period=EVERY, warmup_steps=0)
            self.optimizer = PostLocalSGDOptimizer(self.optimizer, averager)
        elif name in RIVALS:
            self.rival = RIVALS[name](name, self.model, self.optimizer, EVERY)
            self.optimizer = self.rival.optimizer
        else:
            kind, options = STRATEGIES[name]
            self.strategy = getattr(bs, kind)(self.model, self.optimizer, sync_every=EVERY, **options)

    def step(self, images: Any, labels: Any, compute_s: float) -> None:
        from torch.nn.functional import cross_entropy

        time.sleep(compute_s)
        self.optimizer.zero_grad()
        cross_entropy(self.model(images), labels).backward()
        self.optimizer.step()

    def look(self) -> tuple[float, float]:
        """Return loss and accuracy in % on the test images: of the centre, or of this worker's own model."""
        import contextlib

        import torch
        from torch.nn.functional import cross_entropy

        images, labels, split = data()
        bare = getattr(self.model, "module", self.model)
        with self.strategy.centre() if self.strategy else contextlib.nullcontext(), torch.no_grad():
            out = bare(images[split:])
            right = (out.argmax(1) == labels[split:]).float().mean().item()
            return cross_entropy(out, labels[split:]).item(), 100 * right

    def close(self) -> None:
        for each in (self.strategy, self.rival):
            if each:
                each.close()


def train(name: str, seed: int, steps: int, compute_s: float) -> dict[str, Any]:
    """Train with a method; return what this worker saw."""
    import torch
    import torch.distributed as dist

    torch.manual_seed(seed)
    method = Method(name)
    dist.barrier()
    card, looking_s, begun = Card(), 0.0, time.perf_counter()
    curve: list[tuple[int, float, float, float]] = []
    for step, images, labels in trainings.batches(seed, steps):
        method.step(images, labels, compute_s)
        if (step % (steps // 6) == 0 or step == steps) and dist.get_rank() == 0:
            at = time.perf_counter()
            curve.append((step * BATCH * WORKERS, at - begun - looking_s, *method.look()))
            looking_s += time.perf_counter() - at
    seconds = time.perf_counter() - begun - looking_s
    sent, peak = card.stop()
    waited = method.strategy.stats()["exposed_us"] / 1e6 if method.strategy else float("nan")
    method.close()
    dist.barrier()
    return {
        **{"seconds": seconds, "sent": sent, "peak": peak, "waited_s": waited},
        "curve": curve,  # of rank 0: samples of all, seconds, loss and accuracy
    }


def table(found: dict[str, list[Any]], steps: int) -> list[str]:
    """Return a Markdown table: medians over seeds, and all accuracies. Others are compared with the first."""

    def of(name: str, what: str) -> float:
        return statistics.median(statistics.mean(each[what] for each in told) for told in found[name])

    first = next(iter(found))
    lines = [
        "| method | time of a step | faster | sent in a step | of the first's | peak | waited | loss | accuracy |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in found:
        seconds, sent = of(name, "seconds") / steps, of(name, "sent") / steps
        accuracies = " ".join(f"{told[0]['curve'][-1][3]:.1f}" for told in found[name])
        loss = statistics.median(told[0]["curve"][-1][2] for told in found[name])
        waited = of(name, "waited_s") / of(name, "seconds")
        lines.append(
            f"| {name} | {1000 * seconds:.0f} ms | {of(first, 'seconds') / steps / seconds:.1f}x "
            f"| {sent / 1e3:.1f} kB | {sent / (of(first, 'sent') / steps):.3f} "
            f"| {8 * of(name, 'peak') / 1e6:.1f} Mbit/s "
            f"| {'' if math.isnan(waited) else f'{100 * waited:.0f} %'} "
            f"| {loss:.3f} | {accuracies} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mbit", type=float, default=20.0, help="rate of each card, each way")
    parser.add_argument("--compute-s", type=float, default=0.03, help="the sleep in each step")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", default="", help="separated by semicolons; all by default")
    parser.add_argument("--limit-s", type=float, default=900.0, help="the most seconds of all trainings")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rank-writes", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank_writes:
        return trainings.train_all(
            lambda name, seed: train(name, seed, arguments.steps, arguments.compute_s), METHODS, arguments
        )
    names = ["seeds", "steps", "compute-s", "methods"]
    found = trainings.in_lab(f"{WORKERS}x{arguments.mbit:g}mbit", [1] * WORKERS, __file__, arguments, names)
    print(f"{WORKERS} hosts of {arguments.mbit:g} Mbit/s, {4 * (64 * HIDDEN + 11 * HIDDEN + 10) / 1e3:.0f} kB")
    print("\n".join(table(found, arguments.steps)))
    if arguments.json:
        arguments.json.write_text(json.dumps({"mbit": arguments.mbit, "found": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()

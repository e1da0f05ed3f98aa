# SPDX-License-Identifier: Apache-2.0
"""One worker: trains as each line of a plan says. Rank 0 writes the accuracy of its own model, step by step.

A plan is a list of runs. In each, all workers train a perceptron (64-1024-10) on scikit-learn's digits. Its
gradients have 307 KB. A run ends when rank 0's model is right on TARGET of the test images, or at a limit of time.
Nothing is sent for an evaluation: the mean of all workers' models could be better, and is not asked for.
"""

import argparse
import json
import mmap
import os
import struct
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import braid.hooks
import braid.strategies as bs
import torch
import torch.distributed as dist
from braid.data import BalancedSampler
from methods import Method
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

TARGET = 0.96
BATCH = 32  # samples of one worker in a step, on average
LOOK_EVERY = 5
SMOOTHED = 3  # the mean of so many looks has to reach the target
HOPELESS = (50, 0.3)  # after so many looks an accuracy below this is a run that diverged
GOES_ON = 1 << 62


class Stop:
    """The step after which all end: a number in a file that all workers map."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8)

    def at(self) -> int:
        return int(struct.unpack("q", self._memory)[0])

    def say(self, step: int) -> None:
        self._memory[:] = struct.pack("q", step)


class Batches(TensorDataset):
    """Gives a DataLoader whole batches, so that balanced batches cost no more than those of the other methods."""

    def __getitems__(self, indices: list[int]) -> Any:
        return self[indices]


class Digits:
    """Images, labels, and this worker's batches."""

    def __init__(self) -> None:
        digits = load_digits()
        order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
        images = torch.tensor(digits.images, dtype=torch.float32).flatten(1)[order] / 16
        labels, split = torch.tensor(digits.target)[order], len(order) * 4 // 5
        self.train, self.test = Batches(images[:split], labels[:split]), (images[split:], labels[split:])

    def batches(self, sampler: BalancedSampler | None, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches without end, in another order in each epoch."""
        chance, epoch = torch.Generator().manual_seed(seed + 1), 0
        while True:
            if sampler is not None:
                sampler.set_epoch(epoch)
                yield from DataLoader(self.train, batch_sampler=sampler, collate_fn=lambda batch: batch)
            else:
                order = torch.randperm(len(self.train), generator=chance)[dist.get_rank() :: dist.get_world_size()]
                for part in order.split(BATCH)[:-1]:
                    yield self.train[part]
            epoch += 1

    def accuracy(self, model: nn.Module) -> float:
        with torch.no_grad():
            return (model(self.test[0]).argmax(1) == self.test[1]).float().mean().item()


class Looks:
    """What rank 0 saw of its own model."""

    def __init__(self) -> None:
        self.curve: list[tuple[float, int, float]] = []  # seconds, samples of this worker, accuracy
        self._last: deque[float] = deque(maxlen=SMOOTHED)

    def add(self, seconds: float, samples: int, accuracy: float) -> bool:
        """Add a look; return whether to stop: the target is reached, or out of reach."""
        self.curve.append((round(seconds, 4), samples, accuracy))
        self._last.append(accuracy)
        if len(self.curve) >= HOPELESS[0] and max(self._last) < HOPELESS[1]:
            return True
        return len(self._last) == SMOOTHED and sum(self._last) / SMOOTHED >= TARGET


def train(digits: Digits, run: dict[str, Any], stop: Stop, sample_s: float) -> dict[str, Any]:
    """Train once, and return what this worker saw."""
    method = Method(**run["method"])
    torch.manual_seed(run["seed"])
    model: Any = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=run["rate"], momentum=0.9)
    strategy: Any = None
    sampler = BalancedSampler(digits.train, batch_size=BATCH, seed=run["seed"]) if method.balanced else None
    trained = model
    if method.strategy:
        strategy = bs.from_text(method.strategy, model, optimizer)
        optimizer = strategy if hasattr(strategy, "step") else optimizer
    else:
        trained = DistributedDataParallel(model)
        if method.compression:
            trained.register_comm_hook(braid.hooks.AutoState(trained, method.compression), braid.hooks.auto)
    if sampler is not None:
        sampler.attach(trained)
    looks, steps, samples = Looks(), 0, 0
    dist.barrier()
    begun = time.perf_counter()
    for images, labels in digits.batches(sampler, run["seed"]):
        if steps >= stop.at():
            break
        computed = time.perf_counter() + len(labels) * sample_s
        optimizer.zero_grad()
        loss = cross_entropy(trained(images), labels)
        time.sleep(max(0.0, computed - time.perf_counter()))
        loss.backward()
        optimizer.step()
        steps, samples = steps + 1, samples + len(labels)
        if dist.get_rank() == 0 and steps % LOOK_EVERY == 0 and stop.at() == GOES_ON:
            passed = time.perf_counter() - begun
            if looks.add(passed, samples, digits.accuracy(model)) or passed > run["limit_s"]:
                # DistributedDataParallel's workers must end in one step: none can be further than the next.
                stop.say(steps + 1 if strategy is None else 0)
    if strategy is not None:
        strategy.settle()
    dist.barrier()
    if strategy is not None:
        strategy.close()
    return {"curve": looks.curve, "steps": steps, "samples": samples}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("folder", type=Path, help="has plan.json; results.jsonl is written there")
    folder = parser.parse_args().folder
    plan = json.loads((folder / "plan.json").read_text())
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    digits = Digits()
    for number, run in enumerate(plan["runs"]):
        meeting = f"file://{folder}/meeting{number}"
        dist.init_process_group(run["method"]["backend"], init_method=meeting, rank=rank, world_size=ranks)
        told: list[Any] = [None] * ranks
        found = train(digits, run, Stop(folder / f"stop{number}"), plan["sample_ms"][rank] / 1000)
        dist.all_gather_object(told, found)
        dist.destroy_process_group()
        if rank == 0:
            found["samples_of_all"] = sum(each["samples"] for each in told)
            found["steps_of_each"] = [each["steps"] for each in told]
            with (folder / "results.part").open("a") as file:
                file.write(json.dumps({**run, **found}) + "\n")
    if rank == 0:
        (folder / "results.part").rename(folder / "results.jsonl")


if __name__ == "__main__":
    main()

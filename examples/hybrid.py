# SPDX-License-Identifier: Apache-2.0
"""Train a small network on scikit-learn's handwritten digits in groups of workers of like speed.

Start it with ``torchrun --nproc-per-node 4 hybrid.py`` or ``braid run --nproc 4 hybrid.py``. Ranks sleep in each
step, some longer, in the place of slower machines. Workers of a group average their gradients; groups do not wait
for each other. Rank 0 prints the groups, the accuracy of the servers' values, and how stale gradients were.
"""

import argparse
import os
import time

import braid.strategies as bs
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Return the training (four fifths) and the test images, the same on all ranks."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    split = len(labels) * 4 // 5
    return tuple(TensorDataset(images[part], labels[part]) for part in (order[:split], order[split:]))  # type: ignore[return-value]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10))


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    images, labels = data.tensors
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).float().mean().item()
    model.train()
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", default="auto", help="auto, host, or ranks such as 0+1/2/3")
    parser.add_argument("--rate-rule", choices=["linear", "sqrt", "none"], default="linear")
    parser.add_argument("--warmup-steps", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--sleep-ms", default="5,5,10,20", help="how long each rank sleeps in a step, in turn")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // world_size))
    torch.manual_seed(0)
    sleeps = [float(ms) / 1000 for ms in arguments.sleep_ms.split(",")]

    train, test = load_data()
    sampler: DistributedSampler[TensorDataset] = DistributedSampler(train, seed=0, drop_last=True)
    loader = DataLoader(train, batch_size=32, sampler=sampler, drop_last=True)
    model = network()
    strategy = f"hybrid:groups={arguments.groups},rate_rule={arguments.rate_rule}"
    plain = torch.optim.SGD(model.parameters(), lr=arguments.learning_rate, momentum=0.9)
    with bs.from_text(f"{strategy},warmup_steps={arguments.warmup_steps}", model, plain) as optimizer:
        begun = time.perf_counter()
        for epoch in range(arguments.epochs):
            sampler.set_epoch(epoch)
            for images, labels in loader:
                time.sleep(sleeps[rank % len(sleeps)])
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
        seconds = time.perf_counter() - begun
        stats = optimizer.stats()
        waited = (stats["group_us"] / 1e6, stats["exposed_us"] / 1e6)
        print(
            f"rank {rank}: {stats['steps']} steps in {seconds:.2f} s; it waited {waited[0]:.2f} s for its group "
            f"and {waited[1]:.2f} s for servers",
            flush=True,
        )
        dist.barrier()  # so that the last accuracy is that of all steps; no step needs it
        with optimizer.centre():
            reached = accuracy(model, test)
        if rank == 0:
            print(f"groups {stats['groups']}, test accuracy {100 * reached:.1f} %")
            counts = enumerate(optimizer.stats()["staleness"])
            staleness = ", ".join(f"{stale}: {count}" for stale, count in counts if count)
            print(f"staleness of the gradients that rank 0's shard got: {staleness}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Train a small network on scikit-learn's handwritten digits with gossip.

Start it with ``torchrun --nproc-per-node 4 gossip.py`` or ``braid run --nproc 4 gossip.py``. Each rank trains
alone, and averages its parameters with one other rank at a time, in the background. Rank 0 prints the accuracy of
the mean of all, and that of its own values. ``--slow-ms 50`` makes the last rank slow: the others do not wait.

A step of so small a network takes less time than an exchange, and the ranks would drift apart. So each step also
sleeps 5 ms, as if the network were larger; see ``--step-ms``.
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

MODES = ["symmetric", "push_sum", "dissemination", "pull"]


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
    parser.add_argument("--mode", choices=MODES, default="symmetric")
    parser.add_argument("--graph", default=None, help="ring, exponential, random, bipartite or auto")
    parser.add_argument("--sync-every", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--step-ms", type=float, default=5.0, help="each rank sleeps this long in each step")
    parser.add_argument("--slow-ms", type=float, default=0.0, help="the last rank sleeps this much longer")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // world_size))
    torch.manual_seed(0)

    train, test = load_data()
    sampler: DistributedSampler[TensorDataset] = DistributedSampler(train, seed=0, drop_last=True)
    loader = DataLoader(train, batch_size=32, sampler=sampler, drop_last=True)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.learning_rate, momentum=0.9)
    options = {"mode": arguments.mode, "graph": arguments.graph, "sync_every": arguments.sync_every}
    with bs.Gossip(model, optimizer, **options) as strategy:
        begun = time.perf_counter()
        for epoch in range(arguments.epochs):
            sampler.set_epoch(epoch)
            for images, labels in loader:
                time.sleep((arguments.step_ms + (rank == world_size - 1) * arguments.slow_ms) / 1000)
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
        seconds = time.perf_counter() - begun
        strategy.settle()
        stats = strategy.stats()
        waited = stats["exposed_us"] / 1e6
        told = f"{stats['steps']} steps and {stats['exchanges']} exchanges in {seconds:.2f} s"
        print(f"rank {rank}: {told}, {waited:.2f} s of it averaging", flush=True)
        dist.barrier()  # so that the accuracy is that of all steps; no step needs it
        if rank == 0:
            own = accuracy(model, test)
            with strategy.centre():
                print(f"test accuracy of the mean {100 * accuracy(model, test):.1f} %", flush=True)
            print(f"test accuracy of rank 0's own values {100 * own:.1f} %", flush=True)
        dist.barrier()  # the mean is that of the ranks that are there
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

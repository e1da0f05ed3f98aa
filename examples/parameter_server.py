# SPDX-License-Identifier: Apache-2.0
"""Train a small network on scikit-learn's handwritten digits through asynchronous parameter servers.

Start it with ``torchrun --nproc-per-node 4 parameter_server.py`` or ``braid run --nproc 4 parameter_server.py``.
No worker waits for another. Rank 0 prints the accuracy of the servers' values, and how stale gradients were.
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
    parser.add_argument("--mode", choices=["async", "ssp", "sync"], default="async")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--delay", type=int, default=0, help="1: a step does not wait for its own pull")
    parser.add_argument("--slow-ms", type=float, default=0.0, help="the last rank sleeps this long in each step")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // world_size))
    torch.manual_seed(0)

    train, test = load_data()
    sampler: DistributedSampler[TensorDataset] = DistributedSampler(train, seed=0, drop_last=True)
    loader = DataLoader(train, batch_size=32, sampler=sampler, drop_last=True)
    model = network()
    options = {"mode": arguments.mode, "delay": arguments.delay}
    with bs.ParameterServer(
        model, torch.optim.SGD, lr=arguments.learning_rate, momentum=0.9, **options
    ) as optimizer:
        begun = time.perf_counter()
        for epoch in range(arguments.epochs):
            sampler.set_epoch(epoch)
            for images, labels in loader:
                if rank == world_size - 1:
                    time.sleep(arguments.slow_ms / 1000)
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
        seconds = time.perf_counter() - begun
        stats = optimizer.stats()
        waited = stats["exposed_us"] / 1e6
        print(f"rank {rank}: {stats['steps']} steps in {seconds:.2f} s, {waited:.2f} s of it waiting", flush=True)
        dist.barrier()  # so that the last accuracy is that of all steps; no step needs it
        if rank == 0:
            with optimizer.centre():
                print(f"test accuracy {100 * accuracy(model, test):.1f} %")
            counts = enumerate(optimizer.stats()["staleness"])
            staleness = ", ".join(f"{stale}: {count}" for stale, count in counts if count)
            print(f"staleness of the gradients that rank 0's shard got: {staleness}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

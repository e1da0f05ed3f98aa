# SPDX-License-Identifier: Apache-2.0
"""Train a small network on scikit-learn's handwritten digits with local steps: DiLoCo or local SGD.

Start it with ``torchrun --nproc-per-node 4 diloco.py`` or ``braid run --nproc 4 diloco.py``. Each rank trains
alone, and every few steps all move a common centre. Rank 0 prints the accuracy of the centre, and what each rank
has sent beside what DistributedDataParallel would have.
"""

import argparse
import os
import time
from typing import Any

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
    parser.add_argument("--strategy", choices=["diloco", "local"], default="diloco")
    parser.add_argument("--sync-every", type=int, default=10)
    parser.add_argument("--warmup-steps", type=int, default=0)
    parser.add_argument("--num-fragments", type=int, default=1)
    parser.add_argument("--delay", type=int, default=0, help="steps beside which a fragment travels")
    parser.add_argument("--alpha", type=float, default=0.0, help="which part of its own values a worker keeps")
    parser.add_argument("--compression", default="off", help="a codec for the rounds, as int4")
    parser.add_argument("--quorum", type=int, help="how many ranks a round needs; the centre is then at servers")
    parser.add_argument("--grace-s", type=float, default=0.05, help="how long a quorum waits for the others")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=0.005)
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate)
    options: dict[str, Any] = {"sync_every": arguments.sync_every, "compression": arguments.compression}
    options["warmup_steps"] = arguments.warmup_steps
    if arguments.quorum is not None:
        options |= {"quorum": arguments.quorum, "grace_s": arguments.grace_s}
    kind = bs.LocalSGD
    if arguments.strategy == "diloco":
        kind = bs.DiLoCo
        options |= {"num_fragments": arguments.num_fragments, "fragment_sync_delay": arguments.delay}
        options["fragment_update_alpha"] = arguments.alpha
    with kind(model, optimizer, **options) as strategy:
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
        stats = strategy.stats()
        waited = stats["exposed_us"] / 1e6
        told = f"{stats['steps']} steps and {stats['rounds']} rounds in {seconds:.2f} s"
        print(f"rank {rank}: {told}, {waited:.2f} s of it waiting", flush=True)
        strategy.settle()  # where ranks meet in rounds, a barrier alone could wait for ever
        dist.barrier()  # so that the accuracy is that of all steps; no step needs it
        if rank == 0:
            with strategy.centre():
                print(f"test accuracy of the centre {100 * accuracy(model, test):.1f} %", flush=True)
            if arguments.quorum is None and world_size > 1:
                floats = sum(parameter.numel() for parameter in model.parameters())
                plain = stats["steps"] * 2 * (world_size - 1) / world_size * 4 * floats
                part = stats["sent_bytes"] / plain
                print(f"sent {100 * part:.1f} % of what DistributedDataParallel would have", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

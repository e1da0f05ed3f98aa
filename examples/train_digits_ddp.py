# SPDX-License-Identifier: Apache-2.0
"""Train a small CNN on scikit-learn's handwritten digits with DistributedDataParallel.

A plain PyTorch script: start it with ``torchrun --nproc-per-node 4 train_digits_ddp.py``, or with any other
launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Every rank prints nothing but rank 0.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy, max_pool2d, relu
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from tqdm import tqdm


class DigitsNet(nn.Module):
    """Two convolutions and two linear layers for 8x8 grey images: about 0.6 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.linear1 = nn.Linear(64 * 4 * 4, 512)
        self.linear2 = nn.Linear(512, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = relu(self.conv1(images))
        x = max_pool2d(relu(self.conv2(x)), 2)
        return self.linear2(relu(self.linear1(x.flatten(1))))


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Return the training (four fifths) and the test images, the same on all ranks."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    split = len(labels) * 4 // 5
    return tuple(TensorDataset(images[part], labels[part]) for part in (order[:split], order[split:]))  # type: ignore[return-value]


# With a learning rate that suits the network.
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 0.001}),
    "adamw": (torch.optim.AdamW, {"lr": 0.001}),
}


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    images, labels = data.tensors
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).float().mean().item()
    model.train()
    return right


def time_communication(model: DistributedDataParallel, seconds: list[float]) -> None:
    """Note for every gradient bucket how long its all-reduce was under way; works with any backend."""

    def hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        start = time.perf_counter()
        gradients = bucket.buffer().div_(dist.get_world_size())
        future = dist.all_reduce(gradients, async_op=True).get_future()

        def note(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            seconds.append(time.perf_counter() - start)
            return done.value()[0]

        return future.then(note)

    model.register_comm_hook(None, hook)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="gloo", help="what init_process_group is asked for")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--optimizer", choices=list(OPTIMIZERS), default="momentum")
    parser.add_argument("--learning-rate", type=float, help="by default one that suits the optimizer")
    parser.add_argument("--history", type=Path, help="time communication; write what was measured as JSON")
    arguments = parser.parse_args()

    dist.init_process_group(arguments.backend)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // world_size))
    torch.manual_seed(0)

    train, test = load_data()
    sampler: DistributedSampler[TensorDataset] = DistributedSampler(train, seed=0, drop_last=True)
    loader = DataLoader(train, batch_size=arguments.batch_size, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(DigitsNet())
    make, numbers = OPTIMIZERS[arguments.optimizer]
    rate = {} if arguments.learning_rate is None else {"lr": arguments.learning_rate}
    optimizer = make(model.parameters(), **{**numbers, **rate})

    communication_seconds: list[float] = []
    if arguments.history:
        time_communication(model, communication_seconds)

    show_bar = rank == 0 and sys.stderr.isatty()
    losses: list[float] = []
    step_seconds: list[float] = []
    test_accuracy = 0.0
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        bar = tqdm(loader, desc=f"epoch {epoch + 1}/{arguments.epochs}", disable=not show_bar, leave=False)
        for images, labels in bar:
            start = time.perf_counter()
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            step_seconds.append(time.perf_counter() - start)
            mean_loss = loss.detach()
            dist.all_reduce(mean_loss, op=dist.ReduceOp.SUM)
            losses.append(mean_loss.item() / world_size)
        if rank == 0:
            test_accuracy = accuracy(model.module, test)
            epoch_loss = sum(losses[-len(loader) :]) / len(loader)
            print(
                f"epoch {epoch + 1}: loss {epoch_loss:.4f}, test accuracy {100 * test_accuracy:.1f} %",
                flush=True,
            )

    if rank == 0 and arguments.history:
        history = {
            "losses": losses,
            "accuracy": test_accuracy,
            "step_seconds": step_seconds,
            "communication_seconds": communication_seconds,
        }
        arguments.history.write_text(json.dumps(history))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Train a small network on scikit-learn's handwritten digits with batches that follow the workers' speeds.

Start it with ``torchrun --nproc-per-node 4 balanced.py`` or ``braid run --nproc 4 balanced.py``. Rank 0 needs
three times as long for a sample, so it gets fewer. Rank 0 prints the shares after each epoch, and the test
accuracy.
"""

import time
from typing import Any

import torch
import torch.distributed as dist
from braid.data import BalancedSampler
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SAMPLE_S = 0.001


class Digits(Dataset[Any]):
    """Images and labels; reading one takes time, on rank 0 three times as long."""

    def __init__(self, part: slice) -> None:
        digits = load_digits()
        order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))[part]
        self.images = torch.tensor(digits.images, dtype=torch.float32).flatten(1)[order] / 16
        self.labels = torch.tensor(digits.target)[order]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        time.sleep(SAMPLE_S * (3 if dist.get_rank() == 0 else 1))
        return self.images[index], self.labels[index]


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    training, test = Digits(slice(0, 1437)), Digits(slice(1437, None))
    sampler = BalancedSampler(training, batch_size=16, revise_every=5)
    loader = DataLoader(training, batch_sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)))
    sampler.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        begun = time.perf_counter()
        for images, labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            rate = len(training) / (time.perf_counter() - begun)
            print(f"epoch {epoch}: {rate:.0f} samples/s, shares {sampler.shares}", flush=True)
    with torch.no_grad():
        right = (model(test.images).argmax(1) == test.labels).float().mean().item()
    if dist.get_rank() == 0:
        print(f"test accuracy {100 * right:.1f} %", flush=True)
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

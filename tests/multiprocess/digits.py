# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits of scikit-learn for tests that train: a small network learns them within seconds."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

BATCH = 32


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))


def _data() -> tuple[Tensor, Tensor, int]:
    from sklearn.datasets import load_digits  # slow to import, and most processes that read this file need no data

    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1)[order] / 16
    return images, torch.tensor(digits.target)[order], len(order) * 4 // 5


def batches(rank: int, ranks: int, epochs: int = 8) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield this rank's part of the training images, in another order each epoch."""
    images, labels, split = _data()
    for epoch in range(epochs):
        order = torch.randperm(split, generator=torch.Generator().manual_seed(1 + epoch))
        steps = split // (ranks * BATCH)
        for step in range(steps):
            begin = (step * ranks + rank) * BATCH
            yield images[order[begin : begin + BATCH]], labels[order[begin : begin + BATCH]]


def accuracy(model: nn.Module) -> float:
    """Return which part of the test images the model knows."""
    images, labels, split = _data()
    model.eval()
    with torch.no_grad():
        found = (model(images[split:]).argmax(1) == labels[split:]).float().mean().item()
    model.train()
    return found

# SPDX-License-Identifier: Apache-2.0
"""Points in space, on which side of a plane they lie, and a small model that learns it."""

import torch
from torch import nn
from torch.utils.data import TensorDataset


def points(samples: int, seed: int) -> TensorDataset:
    """Return inputs of shape (samples, 8) and labels 0 or 1."""
    x = torch.randn(samples, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x.sum(1) > 0).long())


def net() -> nn.Module:
    """Return the same model on all ranks."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

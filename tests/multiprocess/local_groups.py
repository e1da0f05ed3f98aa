# SPDX-License-Identifier: Apache-2.0
"""Three workers in two groups that take local steps on a vector."""

from typing import Any

import braid.strategies as bs
import numpy as np
import torch
from torch import nn

ELEMENTS = 50
RATE = 0.1
RUN_S = 400.0  # On a machine with many other jobs one run can take three minutes.
GROUPS = [[0, 1], [2]]


class Point(nn.Module):
    """A vector that is trained by gradients from outside."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ELEMENTS, dtype=dtype))


def gradient(worker: int, step: int, at: np.ndarray) -> np.ndarray:
    target = np.random.default_rng((worker, step)).normal(worker, 0.1, at.size)
    return np.asarray(at - target)


def take_steps(model: Point, optimizer: torch.optim.Optimizer, worker: int, steps: range) -> None:
    for step in steps:
        at = model.weight.detach().float().numpy()
        model.weight.grad = torch.from_numpy(gradient(worker, step, at)).to(model.weight.dtype)
        optimizer.step()


def halos(model: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> bs.DiLoCo:
    chosen = {"sync_every": (2, 4), "groups": GROUPS, "asynchronous": True, "timeout": 120.0, **options}
    return bs.DiLoCo(model, optimizer, **chosen)


def centre_of(strategy: bs.DiLoCo | bs.LocalSGD, model: Point) -> list[float]:
    with strategy.centre():
        return list(model.weight.tolist())

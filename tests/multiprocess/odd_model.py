# SPDX-License-Identifier: Apache-2.0
"""A model with state of all kinds that scripts have."""

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Odd(nn.Module):
    """State of all kinds, other values on each rank."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(rank)
        self.inside, self.tied = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.tied.weight = self.inside.weight
        self.norm = nn.BatchNorm1d(4)
        self.frozen = nn.Parameter(torch.randn(4, 4, generator=draw), requires_grad=False)
        self.large = nn.Parameter(torch.full((300, 100), float(rank)), requires_grad=False)
        self.expert = nn.Parameter(torch.full((4,), 10.0 * rank))
        self.register_buffer("mask", torch.full((4, 4), -torch.inf).triu(1))
        self.register_buffer("highest", torch.tensor(-torch.inf))
        self.register_buffer("unknown", torch.tensor(torch.nan))
        self.register_buffer("table", torch.full((3,), float(rank)), persistent=False)
        self.register_buffer("count", torch.tensor(rank))
        self.register_buffer("mean", torch.full((4,), float(rank)))
        self.register_buffer("mine", torch.full((2,), float(rank)))
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self, ["expert", "mine"])

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.5 * self.mean + 0.5 * x.mean(0)
        self.highest = torch.maximum(self.highest, x.max())
        self.count += 1
        y = self.inside(x) @ self.frozen
        seen = torch.softmax(y.unsqueeze(1) + self.mask, 2)
        return (self.norm(y + self.tied(x)) * self.expert).square().mean() + seen.square().mean()

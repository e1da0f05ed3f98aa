# SPDX-License-Identifier: Apache-2.0
"""A model in DDP with a compressing hook, and hooks called with gradients that a test chooses."""

from typing import Any

import braid.hooks
import torch
import torch.distributed as dist
from braid.compression import CompressionPolicy
from bucket_of import Bucket
from ranks import Rank
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 60


class Net(nn.Module):
    """Some of everything: matrices long enough for a codec, a norm, biases, an embedding, a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 16)
        self.first = nn.Linear(16, 300)
        self.norm = nn.LayerNorm(300)
        self.second = nn.Linear(300, 200)
        self.branch = nn.Linear(200, 200)
        self.last = nn.Linear(200, 4)

    def forward(self, x: torch.Tensor, use_branch: bool = True) -> torch.Tensor:
        x = torch.tanh(self.norm(self.first(self.embed(x).mean(1))))
        x = torch.tanh(self.second(x))
        return self.last(self.branch(x) if use_branch else x)


def batch(data: torch.Generator, size: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Six digits each; the class is how large their sum is."""
    x = torch.randint(10, (size, 6), generator=data)
    return x, ((x.sum(1) - 17) // 7).clamp(0, 3)


def make(**options: Any) -> DistributedDataParallel:
    torch.manual_seed(0)
    return DistributedDataParallel(Net(), bucket_cap_mb=0.2, **options)


def step(rank: Rank, model: nn.Module, optimizer: Any, data: torch.Generator, **how: Any) -> None:
    optimizer.zero_grad()
    x, y = batch(data)
    nn.functional.cross_entropy(model(x, **how), y).backward()
    optimizer.step()


def train(rank: Rank, model: nn.Module, steps: int = STEPS, momentum: float = 0.9) -> float:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    data = torch.Generator().manual_seed(rank.rank)
    for _ in range(steps):
        step(rank, model, optimizer, data)
    x, y = batch(torch.Generator().manual_seed(99), 1000)
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


def must_be_equal_everywhere(rank: Rank, model: nn.Module) -> None:
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    everywhere = [torch.empty_like(flat) for _ in range(rank.size)]
    dist.all_gather(everywhere, flat)
    for other in everywhere:
        assert torch.equal(other, flat)


def attach(model: DistributedDataParallel, text: str) -> braid.hooks.AutoState:
    state = braid.hooks.AutoState(model, text)
    model.register_comm_hook(state, braid.hooks.auto)
    return state


def state_of(shapes: dict[str, tuple[int, ...]], policy: str, **how: Any) -> tuple[Any, list[torch.Tensor]]:
    model = nn.ParameterDict({name: nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()})
    state = braid.hooks.AutoState(model, CompressionPolicy.from_text(policy + ",warmup:1"), **how)
    state.steps = 1  # past the warm-up
    return state, list(model.values())


def reduce(
    state: Any, parameters: list[torch.Tensor], gradients: list[torch.Tensor], **where: Any
) -> torch.Tensor:
    return state.reduce(Bucket(parameters, gradients, **where)).wait().clone()


def sum_of(rank: Rank, values: torch.Tensor) -> torch.Tensor:
    total = values.reshape(-1).clone()
    dist.all_reduce(total)
    return total


def mean_of(rank: Rank, values: torch.Tensor) -> torch.Tensor:
    mean = values.reshape(-1).clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    return mean


def stored_by(state: Any) -> list[torch.Tensor]:
    told = state.state_dict()
    return [*told["residuals"].values(), *told["errors"].values()]

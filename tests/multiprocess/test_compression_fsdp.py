# SPDX-License-Identifier: Apache-2.0
"""FSDP2 with a reduce_scatter by a codec: close to the exact one, and exact within a host."""

from contextlib import nullcontext

import braid.hooks
import pytest
import torch
import torch.distributed as dist
from hosts_apart import join_apart
from ranks import Rank, run_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

pytestmark = pytest.mark.multiprocess


def train(rank: Rank, codec: str, steps: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    torch.manual_seed(0)
    # Seven rows: shards are of different lengths.
    model = nn.Sequential(nn.Linear(40, 100), nn.Tanh(), nn.Linear(100, 7))
    mesh = init_device_mesh("cpu", (rank.size,))
    for module in (model[0], model[2], model):
        fully_shard(module, mesh=mesh)
    if codec:
        assert braid.hooks.compress_fsdp(model, codec) == ["", "0", "2"]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(rank.rank)
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randn(16, 40, generator=data)
        loss = (model(x) - x[:, :7]).square().mean()
        loss.backward()
        optimizer.step()
    return [parameter.full_tensor().detach() for parameter in model.parameters()], loss.detach()


def share(rank: Rank) -> None:
    join_apart(rank)
    one = braid.hooks.fsdp_reduce_scatter("int8")
    for size in (8, 12):
        wrong = pytest.raises(RuntimeError, match="give each module its own")
        with nullcontext() if size == 8 else wrong:
            one(torch.empty(size // 2), torch.ones(size), dist.group.WORLD, dist.ReduceOp.AVG)
    # Of equal modules sizes say nothing. Each may come again and again; the other may not.
    model = nn.Sequential(nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 40))
    shared = braid.hooks.fsdp_reduce_scatter("int8")
    for module in (model[0], model[2]):
        fully_shard(module, mesh=init_device_mesh("cpu", (rank.size,)))
    model[0].set_custom_reduce_scatter(shared)
    for _ in range(2):
        model(torch.ones(4, 40)).sum().backward()
    model[2].set_custom_reduce_scatter(shared)
    with pytest.raises(RuntimeError, match="of two modules, of 1640 and 1640 elements: give each module its own"):
        model(torch.ones(4, 40)).sum().backward()
    with pytest.raises(ValueError, match="call fully_shard"):
        braid.hooks.compress_fsdp(nn.Linear(2, 2), "int8")


def test_one_for_several_modules_is_refused() -> None:
    run_ranks(share, 2, wire="tcp", join=False)


class Branched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.branch, self.last = nn.Linear(40, 60), nn.Linear(60, 60), nn.Linear(60, 8)

    def forward(self, x: torch.Tensor, use_branch: bool) -> torch.Tensor:
        x = self.first(x)
        return self.last(self.branch(x) if use_branch else x)


def skip_parameters(rank: Rank) -> None:
    """A step that leaves some parameters unused is exact, and what was lost before is still owed."""
    join_apart(rank)
    models, by_codec = [], braid.hooks.fsdp_reduce_scatter("int8")
    for is_lossy in (False, True):
        torch.manual_seed(0)
        models.append(Branched())
        fully_shard(models[-1], mesh=init_device_mesh("cpu", (rank.size,)))
        if is_lossy:
            models[-1].set_custom_reduce_scatter(by_codec)
    torch.manual_seed(rank.rank)
    lost = torch.zeros(0)
    for use_branch in (False, True, False, True):
        x = torch.randn(16, 40)
        for model in models:
            model.zero_grad()
            model(x, use_branch).square().mean().backward()
        exact, ours = (model.first.weight.grad.full_tensor() for model in models)
        assert torch.equal(ours, exact) == (lost.numel() > 0 and not use_branch)
        torch.testing.assert_close(ours, exact, rtol=0.1, atol=0.05 * float(exact.abs().max()))
        if not use_branch and lost.numel():
            assert torch.equal(by_codec._residual, lost)
        lost = by_codec._residual.clone() if use_branch else lost


def test_unused_parameters() -> None:
    run_ranks(skip_parameters, 2, wire="tcp", join=False)


def compare(rank: Rank, apart: bool) -> None:
    if apart:
        join_apart(rank)
    exact, _ = train(rank, "", 10)
    for codec in ("int8", "int4"):
        lossy, _ = train(rank, codec, 10)
        same = [torch.equal(mine, other) for mine, other in zip(lossy, exact, strict=True)]
        assert all(same) != apart
        for mine, other in zip(lossy, exact, strict=True):
            torch.testing.assert_close(mine, other, rtol=0.05, atol=0.02)
            of_first = mine.clone()
            dist.broadcast(of_first, 0)
            assert torch.equal(of_first, mine)


@pytest.mark.parametrize("apart", [True, False])
def test_reduce_scatter_by_codec(apart: bool) -> None:
    run_ranks(compare, 2, apart, wire="tcp", join=not apart)


def test_wrong_codec() -> None:
    for codec in ("exact", "auto", "power_sgd:4"):
        with pytest.raises(ValueError, match=r"need a codec of braid\.lossy_all_reduce"):
            braid.hooks.fsdp_reduce_scatter(codec)
    with pytest.raises(ValueError, match="none of that name"):
        braid.hooks.fsdp_reduce_scatter("int9")

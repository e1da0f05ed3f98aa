# SPDX-License-Identifier: Apache-2.0
"""Linear layers whose gradients travel as factors: the same gradients as DDP's, the same bits on all ranks."""

import braid.hooks
import pytest
import torch
import torch.distributed as dist
from hosts_apart import join_apart
from ranks import Rank, run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.multiprocess


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(300, 500)
        self.second = nn.Linear(500, 400, bias=False)
        self.small = nn.Linear(400, 5)

    def forward(self, x: torch.Tensor, twice: bool = False) -> torch.Tensor:
        x = torch.tanh(self.first(x))
        x = torch.tanh(self.second(x))
        if twice:
            x = torch.tanh(self.second(x @ torch.ones(400, 500)))
        return self.small(x)


def pair() -> tuple[DistributedDataParallel, DistributedDataParallel, braid.hooks.SufficientFactors]:
    net = Net()
    factors = braid.hooks.sufficient_factors(net)
    return DistributedDataParallel(Net()), DistributedDataParallel(net), factors


def compare(rank: Rank, plain: nn.Module, ours: nn.Module) -> None:
    for (name, expected), (_, found) in zip(plain.named_parameters(), ours.named_parameters(), strict=True):
        scale = float(expected.grad.abs().max())
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-6, atol=2e-6 * scale, msg=name)
        everywhere = [torch.empty_like(found.grad) for _ in range(rank.size)]
        dist.all_gather(everywhere, found.grad)
        assert all(torch.equal(other, found.grad) for other in everywhere), name


def compare_with_ddp(rank: Rank) -> None:
    join_apart(rank)
    plain, ours, factors = pair()
    assert factors.parameters == ["first.weight", "second.weight"]
    assert factors.refused == {"small.weight": "small"}
    data = torch.Generator().manual_seed(rank.rank)

    def step(rows: int, twice: bool = False, scale: float = 1.0) -> None:
        x = torch.randn(rows, 3, 300, generator=data)[:, : 1 if rows else 3]
        for model in (plain, ours):
            (model(x, twice).square().sum() * scale).backward()

    step(4)
    compare(rank, plain, ours)
    assert [row.as_factors for row in factors.report()] == [1, 1]
    step(4)  # onto the gradient that is there
    compare(rank, plain, ours)
    for rows, way in ((1 + 3 * rank.rank, "as_factors"), (400 * (rank.rank + 1), "as_matrix")):
        before = [getattr(row, way) for row in factors.report()]
        for model in (plain, ours):
            model.zero_grad()
        step(rows, twice=True)
        compare(rank, plain, ours)
        assert [getattr(row, way) for row in factors.report()] == [before[0] + 1, before[1] + 2]
    for model in (plain, ours):
        model.zero_grad()
    with plain.no_sync(), ours.no_sync():
        step(2)
        step(3)
    step(2, scale=0.5)
    compare(rank, plain, ours)
    for model in (plain, ours):
        model.zero_grad()
    with plain.no_sync(), ours.no_sync():
        step(2)
    for model in (plain, ours):
        model.zero_grad()  # what was accumulated is dropped
    step(2)
    compare(rank, plain, ours)
    with torch.no_grad():
        assert torch.equal(ours.module(torch.ones(2, 300)), plain.module(torch.ones(2, 300)))


@pytest.mark.parametrize("size", [2, 3])
def test_gradients_equal_those_of_ddp(size: int) -> None:
    run_ranks(compare_with_ddp, size, wire="tcp", join=False)


def refuse(rank: Rank) -> None:
    net = Net()
    tied = nn.Sequential(nn.Linear(400, 400), nn.Linear(400, 400))
    tied[1].weight = tied[0].weight
    assert not braid.hooks.sufficient_factors(tied).parameters
    for model, layer, why in (
        (tied, "1", "tied"),
        (net, "nothing", "no module 'nothing'"),
        (nn.Sequential(nn.Conv1d(2, 2, 2)), "0", "is a Conv1d"),
        (DistributedDataParallel(Net()), "first", "before DistributedDataParallel"),
    ):
        with pytest.raises(ValueError, match=why):
            braid.hooks.sufficient_factors(model, layers=[layer])
    net.first.weight.requires_grad_(False)
    with pytest.raises(ValueError, match="frozen"):
        braid.hooks.sufficient_factors(net, layers=["first"])
    assert braid.hooks.sufficient_factors(net, rows=10**6).parameters == []
    # All begin as rank 0, as under DDP.
    other = nn.Linear(300, 300)
    with torch.no_grad():
        other.weight.fill_(rank.rank)
    braid.hooks.sufficient_factors(other)
    assert not other.weight.any()


def test_what_cannot_be_sent_is_refused() -> None:
    run_ranks(refuse, 2)


def test_one_rank() -> None:
    run_ranks(run_alone, 1)


def run_alone(rank: Rank) -> None:
    net = Net()
    factors = braid.hooks.sufficient_factors(net, layers=["first"])
    model = DistributedDataParallel(net)
    model(torch.ones(2, 300)).sum().backward()
    assert net.first.weight.grad is not None
    assert factors.report()[0].as_matrix == 1

# SPDX-License-Identifier: Apache-2.0
"""Linear layers whose gradients travel as factors: the same gradients as DDP's, the same bits on all ranks."""

import copy
import pickle

import braid.hooks
import pytest
import torch
import torch.distributed as dist
import torch.nn.utils.prune
from hosts_apart import join_apart
from ranks import Rank, run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

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
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-6, atol=1e-5 * scale, msg=name)
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
    few, none = 1 + 3 * rank.rank, 4 * (1 - rank.rank % 2)
    for rows, way in ((few, "as_factors"), (none, "as_factors"), (400 * (rank.rank + 1), "as_matrix")):
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


def use_oddly(rank: Rank) -> None:
    """What other engines of gradients get wrong silently: the same as DDP's, or an error."""
    join_apart(rank)
    plain, ours, _ = pair()
    both = (plain, ours)
    torch.manual_seed(rank.rank)
    x, y = torch.randn(3, 300), torch.randn(2, 300)
    # Alone, and by one rank alone: the next synchronized step averages that too.
    if rank.rank == 0:
        for model in both:
            model.module(x).sum().backward()
    for model in both:
        model(input_of(x)).square().sum().backward()
    compare(rank, plain, ours)
    for model in both:
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            model(x).square().sum().backward()
    for mine, other in zip(ours.parameters(), plain.parameters(), strict=True):
        assert mine.grad.dtype == torch.float32
        torch.testing.assert_close(mine.grad, other.grad, rtol=0.05, atol=0.05 * float(other.grad.abs().max()))
    assert torch.equal(ours.module.first(input=x), ours.module.first(x))

    with ours.no_sync():
        first = ours(x).sum()
    with pytest.raises(RuntimeError, match="joined calls"):
        (first + ours(y).sum()).backward()

    net = Net()
    with torch.no_grad():
        net.second.weight.fill_(rank.rank)  # too early for one rank alone
    braid.hooks.sufficient_factors(net)
    assert not net.second.weight.any()
    with torch.no_grad():
        net.second.weight.fill_(rank.rank + 1)  # as when rank 0 loads a checkpoint
    model = DistributedDataParallel(net)
    copied = copy.deepcopy(net)
    assert torch.equal(pickle.loads(pickle.dumps(net))(x), net(x))
    assert torch.equal(copied(x), net(x))
    model(x).sum().backward()
    assert torch.equal(net.second.weight, torch.ones(400, 500))
    with pytest.raises(RuntimeError, match="on the new model too"):
        DistributedDataParallel(copied)(x)
    assert braid.hooks.sufficient_factors(copied).parameters == ["first.weight", "second.weight"]
    DistributedDataParallel(copied)(x).sum().backward()
    with pytest.raises(RuntimeError, match="used otherwise"):
        (model(x).sum() + nn.functional.linear(x, net.first.weight).sum()).backward()


def input_of(x: torch.Tensor) -> torch.Tensor:
    return x.clone().requires_grad_()


def test_odd_uses() -> None:
    run_ranks(use_oddly, 2, wire="tcp", join=False)


class Checkpointed(Net):
    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.use_reentrant = use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(x))
        return self.small(torch.tanh(checkpoint(self.second, x, use_reentrant=self.use_reentrant)))


def recompute(rank: Rank) -> None:
    """With checkpoint() a layer is called once more in the backward pass, where nothing is synchronized."""
    join_apart(rank)
    x = torch.randn(3, 300, generator=torch.Generator().manual_seed(rank.rank))
    nets = [Checkpointed(False), Checkpointed(False), Checkpointed(True)]
    all_factors = [braid.hooks.sufficient_factors(net) for net in nets[1:]]
    plain, ours, refused = (DistributedDataParallel(net) for net in nets)
    for model in (plain, ours):
        model(x).square().sum().backward()
    compare(rank, plain, ours)
    assert [row.as_factors for row in all_factors[0].report()] == [1, 1]
    with pytest.raises(RuntimeError, match=r"use checkpoint\(\.\.\., use_reentrant=False\)"):
        refused(x).square().sum().backward()


def test_activation_checkpointing() -> None:
    run_ranks(recompute, 2, wire="tcp", join=False)


def leave_one_to_ddp(rank: Rank) -> None:
    net = nn.Sequential(*[nn.Linear(400, 400, bias=False) for _ in range(3)])
    factors = braid.hooks.sufficient_factors(net)
    assert factors.parameters == ["0.weight", "1.weight"]
    assert factors.refused == {"2.weight": "DDP wants a parameter that is trained, and there is no other"}
    model = DistributedDataParallel(net)
    model(torch.full((2, 400), float(rank.rank))).square().sum().backward()
    compare(rank, model, model)
    with pytest.raises(ValueError, match="layer '0' cannot send factors: DDP wants a parameter"):
        braid.hooks.sufficient_factors(nn.Sequential(nn.Linear(400, 400, bias=False)), layers=["0"])
    odd = nn.Sequential(nn.Linear(400, 400, dtype=torch.complex64))
    with pytest.raises(ValueError, match="weight is complex"):
        braid.hooks.sufficient_factors(odd, layers=["0"])


def test_one_layer_is_left_to_ddp() -> None:
    run_ranks(leave_one_to_ddp, 2)


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
    for compute in (
        lambda layer: nn.utils.weight_norm(layer),
        lambda layer: nn.utils.prune.random_unstructured(layer, "weight", 0.5),
    ):
        layer = nn.Linear(300, 300)
        compute(layer)
        with pytest.raises(ValueError, match="computed from others"):
            braid.hooks.sufficient_factors(nn.Sequential(layer), layers=["0"])
    late = nn.Sequential(nn.Linear(300, 300))
    braid.hooks.sufficient_factors(late)
    nn.utils.weight_norm(late[0])
    with pytest.raises(RuntimeError, match="no parameter any more"):
        late(torch.ones(2, 300))
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

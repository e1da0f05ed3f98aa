# SPDX-License-Identifier: Apache-2.0
"""Ranks with data of different lengths: those that are done keep answering until the last is (Join)."""

import pytest
import torch
from against_gloo import both_backends
from ranks import Rank
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

pytestmark = pytest.mark.multiprocess


def make_model() -> DistributedDataParallel:
    torch.manual_seed(0)
    return DistributedDataParallel(nn.Linear(5, 3))


def train_with_join(rank: Rank) -> list[torch.Tensor]:
    """Train on more batches the higher the rank, with a plain optimizer and with a sharded one."""
    results = []
    for sharded in (False, True):
        model = make_model()
        if sharded:
            optimizer: torch.optim.Optimizer = ZeroRedundancyOptimizer(
                model.parameters(), torch.optim.SGD, lr=0.1, foreach=False
            )
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        data = torch.Generator().manual_seed(rank.rank)
        with Join([model, optimizer] if sharded else [model]):
            for _ in range(2 + 2 * rank.rank):
                optimizer.zero_grad()
                model(torch.randn(4, 5, generator=data)).square().mean().backward()
                optimizer.step()
        assert not torch.equal(model.module.weight, make_model().module.weight)
        results += [parameter.detach().clone() for parameter in model.parameters()]
    return results


def refuse_uneven_inputs(rank: Rank) -> str:
    """Ask for an error on all ranks, as soon as one has no more data."""
    model = make_model()
    try:
        with model.join(throw_on_early_termination=True):
            for _ in range(2 + rank.rank):
                model(torch.ones(2, 5)).sum().backward()
    except RuntimeError as error:
        return str(error)
    return ""


def train_with_sampler(rank: Rank) -> list[list[float]]:
    """Share out a data set of a length that the ranks do not divide, shuffled anew in each epoch."""
    dataset = TensorDataset(torch.arange(11.0).unsqueeze(1).expand(11, 5))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(dataset, seed=3)
    assert (sampler.rank, sampler.num_replicas) == (rank.rank, rank.size)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=False)
    seen = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (x,) in DataLoader(dataset, batch_size=2, sampler=sampler):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            seen += x[:, 0].tolist()
    return [seen, model.module.weight.flatten().tolist()]


def use_all(rank: Rank) -> dict[str, object]:
    return {
        "joined": train_with_join(rank),
        "sampled": train_with_sampler(rank),
        "refused": refuse_uneven_inputs(rank),
    }


def test_uneven_data() -> None:
    ours, theirs = both_backends(use_all, 2)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine["joined"], other["joined"])
        torch.testing.assert_close(mine["joined"], ours[0]["joined"], rtol=0, atol=0)
        torch.testing.assert_close(mine["sampled"], other["sampled"])
        assert "no longer" in mine["refused"] or "exhausted" in mine["refused"], mine["refused"]
        assert mine["refused"] == other["refused"]
    # In an epoch all samples are seen, each by one rank, and one of them twice, to come out even.
    first = [value for mine in ours for value in mine["sampled"][0][:6]]
    assert sorted(set(first)) == [float(i) for i in range(11)]
    assert len(first) == 12

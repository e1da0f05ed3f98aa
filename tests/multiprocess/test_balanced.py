# SPDX-License-Identifier: Apache-2.0
"""Balanced batches on real ranks: the gradient is that of one process on all samples of the step."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from braid.data import BalancedSampler
from ranks import Rank, run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

pytestmark = pytest.mark.multiprocess

SAMPLES = 53
TIMEOUT_S = 200.0
FORKED: Any = {"multiprocessing_context": "fork"}  # else each would import torch


class Numbered(Dataset[Any]):
    """Samples that know their number; each takes `pause_s` to read."""

    def __init__(self, pause_s: float = 0.0, samples: int = SAMPLES) -> None:
        self.pause_s, self.x = (
            pause_s,
            torch.randn(samples, 3, generator=torch.Generator().manual_seed(1)).double(),
        )

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.pause_s)
        return index, self.x[index]


def all_of(mine: Any) -> list[Any]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return found


def flat(parts: Iterable[list[int]]) -> list[int]:
    return [each for part in parts for each in part]


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (model(x).tanh() * x.sum(1, keepdim=True)).mean()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def steps(loader: Any, model: nn.Module, seen: list[int]) -> Iterator[list[list[int]]]:
    """Train; after each backward yield the samples of all workers, once their gradient is right."""
    data, alone = loader.dataset, network()
    for indices, x in loader:
        model.zero_grad()
        loss_of(model, x).backward()
        union = all_of(indices.tolist())
        alone.zero_grad()
        loss_of(alone, data.x[flat(union)]).backward()
        for mine, other in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad, rtol=1e-12, atol=1e-14)
        seen += flat(union)
        yield union


def known_speeds(rank: Rank) -> None:
    data = Numbered()
    model = DistributedDataParallel(network())
    # Equal shares: what DistributedSampler gives, but no sample twice.
    plain = DistributedSampler(data, seed=3)
    plain.set_epoch(2)
    expected = [batch.tolist() for batch, _ in DataLoader(data, batch_size=4, sampler=plain)]
    equal = BalancedSampler(data, 4, seed=3, revise_every=0)
    assert isinstance(equal, DistributedSampler)
    equal.set_epoch(2)
    found = list(equal)
    assert len(equal) == len(expected) == len(found)
    assert found[:-1] == expected[:-1]
    for workers, options in (
        (0, {}),
        (2, {**FORKED, "prefetch_factor": 2, "persistent_workers": True}),
        (1, {**FORKED, "prefetch_factor": 9}),
    ):
        sampler = BalancedSampler(data, 4, speeds=[1, 3, 2], revise_every=0, max_batch_size=5)
        loader = DataLoader(data, batch_sampler=sampler, num_workers=workers, **options)
        attached = sampler.attach(model)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            seen: list[int] = []
            sizes = [[len(part) for part in union] for union in steps(loader, model, seen)]
            assert sorted(seen) == list(range(SAMPLES))
            assert sizes[:-1] == [[2, 5, 5]] * 4
            assert sum(sizes[-1]) == 5
            assert min(sizes[-1]) == 1
        attached.remove()
    # By hand, without DistributedDataParallel; and accumulation over two batches.
    sampler = BalancedSampler(data, 4, speeds=[1, 3, 2], revise_every=0, drop_last=True)
    assert len(sampler) == 4
    bare, union = network(), []
    for number, (indices, x) in enumerate(DataLoader(data, batch_sampler=sampler)):
        if number < 2:
            (loss_of(bare, x) * sampler.weight / 2).backward()
            union += flat(all_of(indices.tolist()))
    alone = network()
    loss_of(alone, data.x[union]).backward()
    for mine, other in zip(bare.parameters(), alone.parameters(), strict=True):
        dist.all_reduce(mine.grad, dist.ReduceOp.AVG)
        torch.testing.assert_close(mine.grad, other.grad)
    attached = sampler.attach(model)
    model.zero_grad()
    frozen = model.module[0].weight
    frozen.requires_grad_(False)
    batches = iter(DataLoader(data, batch_sampler=sampler))
    union = []
    for number in range(2):
        indices, x = next(batches)
        frozen.requires_grad_(True)
        if number == 0:
            with model.no_sync():
                (loss_of(model, x) / 2).backward()
        else:
            (loss_of(model, x) / 2).backward()
        union += flat(all_of(indices.tolist()))
    alone.zero_grad()
    loss_of(alone, data.x[union]).backward()
    for mine, other in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
    attached.remove()


def measured_speeds(rank: Rank) -> None:
    data = Numbered(0.02 if rank.rank == 1 else 0.001, samples=240)
    model = DistributedDataParallel(network())
    sampler = BalancedSampler(data, 8, revise_every=2)
    loader = DataLoader(data, batch_sampler=sampler)
    attached = sampler.attach(model)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        seen: list[int] = []
        for union in steps(loader, model, seen):
            assert sum(map(len, union)) == 24
            assert min(map(len, union)) >= 1
        assert sorted(seen) == list(range(240))
        assert len({tuple(shares) for shares in all_of(sampler.shares)}) == 1
    assert sampler.shares[1] < min(sampler.shares[0], sampler.shares[2])
    attached.remove()
    # Without attach(): somebody else measures. Shares change at most once in revise_every steps.
    sampler = BalancedSampler(Numbered(samples=240), 8, revise_every=3)
    shares = []
    for _ in sampler:
        shares.append(tuple(sampler.shares))
        sampler.report(sampler.shares[rank.rank] / (1.0 if rank.rank == 1 else 3.0))
    assert shares[0] == (8, 8, 8)
    assert shares[-1] == (10, 4, 10)
    changes = [number for number in range(1, 10) if shares[number] != shares[number - 1]]
    assert changes
    assert all(number % 3 == 0 for number in changes)


def goes_on(rank: Rank) -> None:
    data, model = Numbered(), DistributedDataParallel(network())
    sampler = BalancedSampler(data, 4, speeds=[1, 3, 2], seed=5)
    sampler.set_epoch(4)
    loader = DataLoader(data, batch_sampler=sampler, num_workers=1, **FORKED)
    attached = sampler.attach(model)
    assert sampler.state_dict() == {"epoch": 4, "samples": 0, "shares": [2, 6, 4], "speeds": [1000, 3000, 2000]}
    seen: list[int] = []
    training = steps(loader, model, seen)
    next(training), next(training)
    saved = sampler.state_dict()  # batches that were drawn ahead do not count
    assert saved["samples"] == 24
    training.close()
    attached.remove()
    resumed = BalancedSampler(data, 4, seed=5)
    resumed.load_state_dict(saved)
    resumed.set_epoch(4)
    assert resumed.shares == [2, 6, 4]
    rest = flat(all_of(flat(resumed)))
    assert sorted(seen + rest) == list(range(SAMPLES))
    assert len(list(resumed)) == 5  # the next epoch is a whole one
    two = dist.new_group([0, 1])
    found: list[int] = []
    if rank.rank < 2:  # one worker fewer
        resumed = BalancedSampler(data, 4, seed=5, process_group=two)
        resumed.load_state_dict(saved)
        resumed.set_epoch(4)
        assert resumed.shares == [4, 4]
        found = flat(resumed)
    assert sorted(seen + flat(all_of(found))) == list(range(SAMPLES))
    resumed = BalancedSampler(data, 4, seed=5)
    resumed.load_state_dict(saved)
    resumed.set_epoch(5)  # another epoch begins at its beginning
    assert len(resumed) == 5
    with pytest.raises(ValueError, match="another data set: it has seen 24"):
        BalancedSampler(Numbered(samples=20), 4).load_state_dict(saved)
    with pytest.raises(ValueError, match="no state of a BalancedSampler"):
        resumed.load_state_dict({})


def refusals(rank: Rank) -> None:
    data, other = Numbered(), rank.rank == 1
    for options, why in (
        ({"batch_size": 8 if other else 4}, "worker 1 has batch_size=8, worker 0 has batch_size=4"),
        ({"dataset": Numbered(samples=60 if other else 53)}, "worker 1 has samples=60, worker 0 has samples=53"),
        ({"seed": 1 if other else 0}, "worker 1 has seed=1"),
    ):
        with pytest.raises(ValueError, match=why):
            next(iter(BalancedSampler(**{"dataset": data, "batch_size": 4, **options})))
    with pytest.raises(ValueError, match="batch_size=1: 2 is the least"):
        next(iter(BalancedSampler(data, 1 if other else 4)))
    sampler = BalancedSampler(data, 4)
    sampler.set_epoch(rank.rank)
    with pytest.raises(ValueError, match="worker 1 begins at epoch 1, worker 0 at 0: call set_epoch"):
        next(iter(sampler))
    for kind, options, why in (
        (ValueError, {"dataset": Numbered(samples=2)}, "2 samples for 3 workers"),
        (ValueError, {"speeds": [1, 2]}, "one positive number for each of the 3 workers"),
        (ValueError, {"max_batch_size": 3}, "max_batch_size=3: at least batch_size, 4"),
        (ValueError, {"num_replicas": 2, "rank": 0}, "a process group of 3; leave both out"),
        (ValueError, {"revise_every": -1}, "revise_every=-1"),
        (TypeError, {"dataset": iter([])}, "a data set with a length"),
    ):
        with pytest.raises(kind, match=why):
            BalancedSampler(**{"dataset": data, "batch_size": 4, **options})


def everything(rank: Rank) -> None:
    known_speeds(rank)
    goes_on(rank)
    refusals(rank)
    measured_speeds(rank)


def test_balanced_batches() -> None:
    run_ranks(everything, 3, timeout_s=TIMEOUT_S)


def test_without_a_process_group() -> None:
    data = Numbered()
    with pytest.raises(RuntimeError, match="need a process group, which carries the speeds"):
        BalancedSampler(data, 4)
    parts = [
        flat(BalancedSampler(data, 4, num_replicas=2, rank=rank, revise_every=0, speeds=[1, 2]))
        for rank in range(2)
    ]
    assert sorted(flat(parts)) == list(range(SAMPLES))

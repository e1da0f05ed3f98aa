# SPDX-License-Identifier: Apache-2.0
"""What users get wrong with strategies and balanced batches: each rank hears one sentence soon, none hangs."""

import re
import time
from collections.abc import Callable
from typing import Any

import braid.data
import braid.strategies as bs
import pytest
import torch
import torch.distributed as dist
from ranks import Rank, run_ranks
from slowness import limit
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.multiprocess

SOON_S = limit(20.0)


def on(make: Callable[..., Any], **options: Any) -> Any:
    model = nn.Linear(3, 2)
    return make(model, SGD(model.parameters(), lr=0.1), **options)


CASES: dict[str, tuple[Callable[[int], Any], str]] = {
    "a graph in two parts": (
        lambda rank: on(bs.Gossip, graph=[(0, 1), (2, 3)]),
        r"graph.*(connect|reach|part)",
    ),
    "an edge to nobody": (lambda rank: on(bs.Gossip, graph=[(0, 1), (1, 2), (2, 9)]), r"9"),
    "fragments that do not divide": (
        lambda rank: on(bs.DiLoCo, sync_every=10, num_fragments=3, quorum=2),
        "num_fragments=3 does not divide sync_every=10",
    ),
    "a quorum of more groups than there are": (
        lambda rank: on(bs.DiLoCo, sync_every=(2, 4), groups=[[0, 1], [2, 3]], quorum=3),
        "quorum=3: a number of groups, from 1 to 2",
    ),
    "a quorum of more hosts than there are": (
        lambda rank: on(bs.DiLoCo, sync_every=(2, 4), quorum=2),
        "quorum=2: a number of groups, from 1 to 1",
    ),
    "another strategy on one rank": (
        lambda rank: on(bs.LocalSGD if rank == 2 else bs.Gossip),
        "has 'strategy local_sgd', but worker 0 has 'strategy gossip'",
    ),
    "another option on one rank": (
        lambda rank: on(bs.LocalSGD, sync_every=3 if rank == 1 else 4),
        "has 'sync_every=3', but worker 0 has 'sync_every=4'",
    ),
    "an optimizer that is none of torch's": (
        lambda rank: bs.LocalSGD(nn.Linear(3, 2), object()),
        "attaches to an optimizer that is made",
    ),
    "data sets of other lengths": (
        lambda rank: next(iter(braid.data.BalancedSampler(range(40 + (rank == 1)), batch_size=4))),
        "40|41",
    ),
}


def misuse(rank: Rank, name: str) -> tuple[str, float]:
    begun = time.monotonic()
    with pytest.raises((ValueError, TypeError)) as caught:
        CASES[name][0](rank.rank)
    took_s = time.monotonic() - begun
    dist.barrier()  # the process group still works
    return str(caught.value), took_s


@pytest.mark.parametrize("name", list(CASES))
def test_all_ranks_hear_of_it(name: str) -> None:
    for said, took_s in run_ranks(misuse, 4, name, timeout_s=100.0):
        assert re.search(CASES[name][1], said), said
        assert "\n" not in said
        assert took_s < SOON_S


def on_one_rank(rank: Rank, which: int) -> str:
    """One rank makes a strategy, and the others do not."""
    said = ""
    if rank.rank == which:
        with pytest.raises(TimeoutError) as caught:
            on(bs.LocalSGD, timeout=2.0)
        said = str(caught.value)
    dist.barrier()
    return said


@pytest.mark.parametrize("which", [0, 1])
def test_a_strategy_on_one_rank_only(which: int) -> None:
    said = run_ranks(on_one_rank, 2, which, timeout_s=100.0)[which]
    assert f"worker {1 - which} did not" in said, said


def by_hand(rank: Rank) -> str:
    """A sampler for whole batches is given as a sampler for samples."""
    data = TensorDataset(torch.randn(40, 3))
    sampler = braid.data.BalancedSampler(data, batch_size=4)
    with pytest.raises(ValueError, match="draws whole batches") as caught:
        next(iter(DataLoader(data, batch_size=4, sampler=sampler)))
    return str(caught.value)


def test_a_batch_sampler_in_the_wrong_place() -> None:
    for said in run_ranks(by_hand, 2, timeout_s=100.0):
        assert "batch_sampler=" in said, said

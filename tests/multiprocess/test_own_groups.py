# SPDX-License-Identifier: Apache-2.0
"""Ranks that are in different numbers of groups: what braid makes inside a group still finds its members."""

from collections.abc import Callable
from typing import Any

import braid
import braid.strategies as bs
import pytest
import torch
import torch.distributed as dist
from braid._own_groups import backend_of
from ranks import Rank, run_ranks
from slowness import limit
from torch import nn
from torch.optim import SGD

pytestmark = pytest.mark.multiprocess

TIMEOUT_S = limit(15.0)
QUICK = [("local", "gloo"), ("sync2", "braid"), ("diloco", "braid")]

MAKERS: dict[str, Callable[..., Any]] = {
    "local": lambda *args, **terms: bs.LocalSGD(*args, sync_every=2, **terms),
    "diloco": lambda *args, **terms: bs.DiLoCo(
        *args, outer_optimizer=lambda some: SGD(some, lr=0.7), sync_every=2, **terms
    ),
    **{
        schedule: lambda *args, schedule=schedule, **terms: bs.ElasticAverage(
            *args, sync_every=2, schedule=schedule, **terms
        )
        for schedule in ("sync1", "sync2", "sync3")
    },
    "hybrid": lambda model, optimizer, **terms: bs.Hybrid(model, optimizer, groups=[[0, 1]], **terms),
}


def train(kind: str, group: Any = None) -> None:
    """Train with a strategy twice, so that its groups are made a second time."""
    for _ in range(2):
        model = nn.Linear(3, 2)
        optimizer = SGD(model.parameters(), lr=0.1)
        strategy = MAKERS[kind](model, optimizer, process_group=group, timeout=TIMEOUT_S)
        stepping = strategy if kind == "hybrid" else optimizer
        with strategy:
            for _ in range(4):
                stepping.zero_grad()
                model(torch.full((4, 3), float(dist.get_rank()))).square().mean().backward()
                stepping.step()


def beside_a_group_of_some(rank: Rank, kind: str, backend: str) -> None:
    if backend != "braid":
        rank.store = dist.FileStore(str(rank.folder / "store"))
        dist.init_process_group(backend, store=rank.store, rank=rank.rank, world_size=rank.size)
    else:
        rank.join()
    dist.new_group([1])
    train(kind)
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        pytest.param(kind, backend, marks=[] if (kind, backend) in QUICK else pytest.mark.long)
        for kind in MAKERS
        for backend in ("braid", "gloo")
    ],
)
def test_a_strategy_beside_a_group_that_only_some_are_in(kind: str, backend: str) -> None:
    run_ranks(beside_a_group_of_some, 2, kind, backend, join=False)


def in_a_part(rank: Rank, kind: str) -> None:
    group = dist.new_group([0, 1])
    dist.new_group([1, 2])
    if rank.rank < 2:
        train(kind, group)
    dist.barrier()


@pytest.mark.parametrize("kind", ["hybrid", pytest.param("local", marks=pytest.mark.long)])
def test_a_strategy_in_a_part_of_the_ranks_that_are_in_other_groups(kind: str) -> None:
    run_ranks(in_a_part, 3, kind)


def factors_in_a_part(rank: Rank) -> None:
    group = dist.new_group([0, 1])
    dist.new_group([1, 2])
    if rank.rank < 2:
        for _ in range(2):
            model = nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 2))
            assert braid.hooks.sufficient_factors(model, group, layers=["0"]).parameters == ["0.weight"]
    dist.barrier()


def test_sufficient_factors_in_a_part_of_the_ranks_that_are_in_other_groups() -> None:
    run_ranks(factors_in_a_part, 3)


def job_after_job(rank: Rank) -> None:
    """In the second job torch gives rank 0's group a name that it has used for another group in the first."""
    for job in range(2):
        rank.join(f"job {job}")
        group = dist.new_group([0] if job == 0 else [0, 1])
        if rank.rank == 0 or job == 1:
            train("local", group)
        dist.destroy_process_group()


def test_a_later_job_has_other_ranks_in_a_group_of_the_same_name() -> None:
    run_ranks(job_after_job, 2, join=False)


def backends(rank: Rank) -> None:
    rank.store = dist.FileStore(str(rank.folder / "store"))
    for given, expected in (("braid", "braid"), ("gloo", "gloo"), ("cpu:gloo", "cpu:gloo")):
        store = dist.PrefixStore(given, rank.store)
        dist.init_process_group(given, store=store, rank=rank.rank, world_size=rank.size)
        assert backend_of(dist.group.WORLD) == expected
        again = dist.new_group(backend=backend_of(dist.group.WORLD))
        assert dist.get_backend_config(again) == dist.get_backend_config()
        dist.destroy_process_group()


def test_groups_like_a_given_one_have_its_backend() -> None:
    run_ranks(backends, 1, join=False)

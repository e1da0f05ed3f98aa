# SPDX-License-Identifier: Apache-2.0
"""HALoS on real ranks: DiLoCo with groups that go to the servers each at its own pace. What it computes."""

import time
from typing import Any

import braid.strategies as bs
import numpy as np
import pytest
import torch
import torch.distributed as dist
from digits import accuracy, batches, network
from event_simulation import replay_groups
from local_groups import ELEMENTS, GROUPS, RATE, RUN_S, Point, centre_of, gradient, halos, take_steps
from ports import free_port
from ranks import Rank, run_ranks
from serving import serving
from torch import nn
from torch.optim import SGD

pytestmark = pytest.mark.multiprocess


def with_one_group(rank: Rank) -> list[tuple[list[float], list[float]]]:
    """Return values and centre: of one group and of what it must equal, in turns."""
    found = []
    everyone = [list(range(rank.size))]
    at_once = {"outer_lr": 1.0, "outer_momentum": 0.0, "groups": everyone, "asynchronous": True}
    for make in (
        lambda *on: bs.DiLoCo(*on, sync_every=(1, 1), **at_once),
        lambda *on: bs.LocalSGD(*on, sync_every=1),
        lambda *on: bs.DiLoCo(*on, sync_every=(3, 6), group_lr=0.7, group_momentum=0.9, **at_once),
        lambda *on: bs.DiLoCo(*on, sync_every=3),
    ):
        model = Point()
        optimizer = SGD(model.parameters(), lr=RATE)
        with make(model, optimizer) as strategy:
            take_steps(model, optimizer, rank.rank, range(12))
            dist.barrier()
            found.append((model.weight.tolist(), centre_of(strategy, model)))
            dist.barrier()
    return found


@pytest.mark.parametrize("ranks", [1, 3])
def test_one_group_is_local_sgd_or_diloco_in_rounds(ranks: int) -> None:
    for found in run_ranks(with_one_group, ranks, timeout_s=RUN_S):
        np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
        np.testing.assert_allclose(found[2], found[3], rtol=1e-5, atol=1e-6)


def record(rank: Rank, options: dict[str, Any]) -> tuple[list[int], list[float], list[float]]:
    """Train with one server; return the version after each push, the centre, and the group's model."""
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    with halos(model, optimizer, servers=[0], **options) as strategy:
        dist.barrier()
        versions: list[int] = []
        for step in range(26):  # the last round comes after the last push, so that each has landed
            time.sleep(0.002 * (rank.rank % 2))
            take_steps(model, optimizer, rank.rank, range(step, step + 1))
            if step < 24:
                own = model.weight.tolist()
            stats = strategy.stats()
            if rank.rank != 1 and stats["last_versions"] not in ([], versions[-1:]):
                versions += stats["last_versions"]
        assert stats["pushes"] == 6
        dist.barrier()
        centre = centre_of(strategy, model)
        dist.barrier()
        return versions, centre, own


@pytest.mark.parametrize(
    ("options", "over"),
    [
        ({}, "shm"),
        ({"fragment_sync_delay": 2, "fragment_update_alpha": 0.75, "group_momentum": 0.5}, "tcp"),
        ({"fragment_update_alpha": 0.25, "group_lr": 0.8, "group_momentum": 0.5, "outer_lr": 0.6}, "shm"),
    ],
)
def test_the_order_of_pushes_explains_centre_and_groups(options: dict[str, Any], over: str) -> None:
    results = run_ranks(record, 3, options, wire=over, timeout_s=RUN_S)
    speakers = {version: group for group, rank in enumerate((0, 2)) for version in results[rank][0]}
    assert len(speakers) == 12, "two pushes with one version"
    delay = options.get("fragment_sync_delay", 0) // 2
    centre, models = replay_groups(
        *([speakers[version] for version in sorted(speakers)], GROUPS, np.ones(ELEMENTS), gradient),
        rate=RATE,
        every=2,
        rounds=2,
        delay=delay,
        keep=options.get("fragment_update_alpha", 0.0),
        group_rate=options.get("group_lr", 1.0),
        group_momentum=options.get("group_momentum", 0.0),
        outer_rate=options.get("outer_lr", 0.7),
        outer_momentum=options.get("outer_momentum", 0.9),
    )
    for rank, (_, found, own) in enumerate(results):
        np.testing.assert_allclose(found, centre, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(own, models[rank // 2], rtol=1e-6, atol=1e-6)


def learn(rank: Rank, options: dict[str, Any]) -> float:
    torch.manual_seed(rank.rank)
    model = network()
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
    with halos(model, optimizer, outer_lr=0.7, outer_momentum=0.5, **options) as strategy:
        for images, labels in batches(rank.rank, rank.size):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        strategy.settle()
        dist.barrier()
        with strategy.centre():
            found = accuracy(model)
        dist.barrier()
        return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param(
            {"group_lr": 0.7, "group_momentum": 0.5, "fragment_sync_delay": 2, "fragment_update_alpha": 0.5},
            marks=pytest.mark.long,
        ),
        pytest.param({"compression": "int8"}, marks=pytest.mark.long),
    ],
)
def test_it_learns_digits(options: dict[str, Any]) -> None:
    found = run_ranks(learn, 3, options, timeout_s=RUN_S)
    assert min(found) > 0.85
    if "compression" not in options:  # a codec gives each worker its own view of the centre
        assert found[0] == found[1] == found[2], "all see one centre"


def learn_at_a_server(rank: Rank, port: int) -> float:
    rank.meet_at(port)
    return learn(rank, {"servers": "serve:1"})


@pytest.mark.long
def test_it_learns_digits_at_a_server_alone() -> None:
    port = free_port()
    with serving(f"127.0.0.1:{port}", 1):
        found = run_ranks(learn_at_a_server, 3, port, join=False, timeout_s=RUN_S)
    assert found[0] == found[1] == found[2]
    assert found[0] > 0.85

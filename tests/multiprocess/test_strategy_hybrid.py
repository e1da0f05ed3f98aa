# SPDX-License-Identifier: Apache-2.0
"""Hybrid on real ranks: what groups compute, over which backends, and whom a death concerns."""

import itertools
import os
import signal
import time
from typing import Any

import braid
import braid.strategies as bs
import pytest
import torch
import torch.distributed as dist
from braid.strategies.hybrid.step_times import StepTimes
from ranks import SOON_S, Rank, run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam
from waiting import eventually

pytestmark = pytest.mark.multiprocess

STEPS = 8


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 33), nn.Tanh(), nn.Linear(33, 3))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, steps: int = STEPS) -> None:
    for step in range(steps):
        data = torch.Generator().manual_seed(1000 * step + rank)
        optimizer.zero_grad()
        model(torch.randn(6, 8, generator=data)).square().mean().backward()
        optimizer.step()


def must_equal(model: nn.Module, other: nn.Module) -> None:
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def compute(rank: Rank) -> list[Any]:
    everybody = list(range(rank.size))
    plain = DistributedDataParallel(net())
    train(plain, SGD(plain.parameters(), lr=0.1, momentum=0.9), rank.rank)
    numbers = {"lr": 0.1, "momentum": 0.9, "rate_rule": "none"}
    # One group is DistributedDataParallel, and so are groups of one that wait for each other. Any backend will do.
    for options in (
        {"groups": [everybody]},
        {"groups": "host", "process_group": dist.new_group(backend="gloo")},
        {"groups": [[member] for member in everybody], "mode": "sync"},
    ):
        ours = net()
        with bs.Hybrid(ours, SGD, **numbers, **options) as optimizer:
            train(ours, optimizer, rank.rank)
            must_equal(ours, plain.module)
    # The lower half takes fewer steps, and all have the same in the end.
    model = net()
    with bs.Hybrid(
        model, Adam, lr=0.01, groups=[everybody[::2], everybody[1::2]][: rank.size], delay=1
    ) as optimizer:
        train(model, optimizer, rank.rank, 3 if rank.rank < rank.size // 2 else STEPS)
    # Measured.
    model = net()
    with bs.Hybrid(model, SGD, lr=0.01, measure_steps=3) as optimizer:
        train(model, optimizer, rank.rank)
        with optimizer.centre():
            return optimizer.groups


@pytest.mark.parametrize(
    ("size", "over"),
    [
        (1, "shm"),
        (2, "tcp"),
        (4, "shm"),
        *(pytest.param(n, o, marks=pytest.mark.long) for n, o in ((3, "shm"), (5, "tcp"))),
    ],
)
def test_what_groups_compute(size: int, over: str) -> None:
    groups = run_ranks(compute, size, wire=over)
    assert sorted(itertools.chain(*groups[0])) == list(range(size))
    assert all(each == groups[0] for each in groups)


def part_of_the_world(rank: Rank) -> list[list[int]]:
    some = dist.new_group([1, 2, 3])
    if rank.rank == 0:
        return []
    for _ in range(2):  # a second one must not meet in the first one's group
        os.environ["BRAID_HOST"] = "far" if rank.rank == 3 else "near"
        model = net()
        with bs.Hybrid(model, SGD, lr=0.1, groups="host", process_group=some) as optimizer:
            train(model, optimizer, rank.rank)
            found = optimizer.groups
    return found


def test_groups_by_host_in_a_part_of_the_world() -> None:
    assert run_ranks(part_of_the_world, 4, wire="shm,tcp") == [[], *[[[0, 1], [2]]] * 3]


def measure_links(rank: Rank, rate: str) -> list[list[int]]:
    StepTimes.median_s = lambda self: 0.02  # as all have measured
    path = rank.folder / f"links.{rank.rank}.toml"
    path.write_text(f'[between]\nrate = "{rate}"\nlatency = "100us"\n')
    path.rename(rank.folder / "links.toml")
    os.environ["BRAID_HOST"] = f"host-{rank.rank // 2}"
    os.environ["BRAID_LINKS"] = str(rank.folder / "links.toml")
    rank.join()
    model = net()
    with bs.Hybrid(model, SGD, lr=0.1, measure_steps=2) as optimizer:
        train(model, optimizer, rank.rank, 4)
        return optimizer.groups


@pytest.mark.parametrize(("rate", "groups"), [("100mbit", [[0, 1, 2, 3]]), ("1mbit", [[0, 1], [2, 3]])])
def test_good_links_join_hosts(rate: str, groups: list[list[int]]) -> None:
    assert run_ranks(measure_links, 4, rate, wire="shm,tcp", join=False) == [groups] * 4


def lose_one(rank: Rank, victim: int, backend: str, mode: str) -> Any:
    model = net()
    group = dist.new_group(backend=backend)
    losses = []
    options = {"groups": [[0, 1], [2, 3, 4]], "mode": mode, "process_group": group}
    dist.barrier()
    try:
        with bs.Hybrid(model, SGD, lr=0.001, **options) as optimizer:
            rank.meet("begun")  # else nobody may be left who has the dead one's values
            for step in range(60):
                if rank.rank == victim and step == 20:
                    rank.mark("dies")
                    os.kill(os.getpid(), signal.SIGKILL)
                if step == 30:
                    rank.wait_for("dies", victim)
                time.sleep(0.002)
                begun = time.monotonic()
                optimizer.zero_grad()
                loss = model(torch.ones(2, 8)).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                if (rank.rank < 2) != (victim < 2):
                    assert time.monotonic() - begun < SOON_S
            if rank.rank in (0, 2):  # a speaker: it loses the other one as a worker, and as a server
                eventually(lambda: len(optimizer.stats()["lost_members"]) >= 2, "the notice of both losses")
            lost = optimizer.stats().get("lost_members", [])
    except braid.CommunicatorError as error:
        assert time.monotonic() - begun < SOON_S
        heard = str(error), error.rank
        # Whoever hears later must find the others of its group alive, so that it names the one that died.
        rank.mark("heard")
        for other in {0, 1} if rank.rank < 2 else {2, 3, 4}:
            if other != victim:
                rank.wait_for("heard", other)
        return heard
    return losses, lost


MORE_DEATHS = [(3, "braid", "shm", "ssp"), (2, "gloo", "tcp", "async")]


@pytest.mark.parametrize(
    ("victim", "backend", "over", "mode"),
    [
        *[(0, "braid", "shm", "async"), (2, "braid", "tcp", "sync"), (3, "gloo", "shm", "sync")],
        *[pytest.param(*case, marks=pytest.mark.long) for case in MORE_DEATHS],
    ],
)
def test_a_death_ends_its_group_alone(victim: int, backend: str, over: str, mode: str) -> None:
    results = run_ranks(lose_one, 5, victim, backend, mode, wire=over, killed=[victim])
    ended, others = ((0, 1), (2, 3, 4)) if victim < 2 else ((2, 3, 4), (0, 1))
    name = "ranks 0 and 1" if victim < 2 else "ranks 2, 3 and 4"
    for text, rank in (results[member] for member in ended if member != victim):
        assert text.startswith(f"the group of {name} ends: rank {victim} is lost: "), text
        assert rank == victim
        assert "\n" not in text
    speaker = "rank 0 (for ranks 0 and 1) on " if victim < 2 else "rank 2 (for ranks 2 to 4) on "
    for member in others:
        losses, lost = results[member]
        assert len(losses) == 60
        assert losses[59] < losses[30] < losses[0]
        # Only the other group's speaker has to do with the one that was lost: as a worker, and as a server.
        assert len(lost) == (2 if member == others[0] else 0), lost
        assert all(speaker in line and "(pid " in line for line in lost)
        if victim not in (0, 2):
            assert all(f"rank {victim} is lost" in line for line in lost), lost


def fail(rank: Rank) -> str:
    begun = time.monotonic()
    try:
        with bs.Hybrid(net(), SGD, lr=0.02, groups=[[0, 2], [1]]) as optimizer:
            rank.meet("begun")  # else nobody may be left who has the values that rank 1 still begins with
            for step in range(10):
                if rank.rank == 2 and step == 5:
                    raise KeyError("the user's own")
                optimizer.step()
    except (KeyError, braid.CommunicatorError) as error:
        assert time.monotonic() - begun < SOON_S
        return type(error).__name__
    return "went on"


def test_after_an_error_nobody_waits(wire: str) -> None:
    assert run_ranks(fail, 3, wire=wire) == ["CommunicatorError", "went on", "KeyError"]

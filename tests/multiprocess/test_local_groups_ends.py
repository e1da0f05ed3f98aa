# SPDX-License-Identifier: Apache-2.0
"""DiLoCo with groups that go to the servers each at its own pace: who waits, deaths, ends, and saved states."""

import os
import signal
import time
from typing import Any

import braid.strategies as bs
import numpy as np
import pytest
import torch
import torch.distributed as dist
from braid import CommunicatorError
from local_groups import ELEMENTS, GROUPS, RATE, RUN_S, Point, centre_of, halos, take_steps
from ranks import Rank, run_ranks
from slowness import limit
from torch.optim import SGD

pytestmark = pytest.mark.multiprocess

SOON_S = limit(60.0)  # of the 120 s of a timeout


def go_ahead(rank: Rank) -> int:
    """One group takes all its steps before the other one takes its first."""
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    with halos(model, optimizer) as strategy:
        if rank.rank == 2:
            for other in GROUPS[0]:
                rank.wait_for("settled", other, SOON_S)
        take_steps(model, optimizer, rank.rank, range(12))
        strategy.settle()
        pushes = int(strategy.stats()["pushes"])
        rank.mark("settled")
    return pushes


def test_groups_do_not_wait_for_each_other() -> None:
    assert run_ranks(go_ahead, 3, timeout_s=RUN_S) == [3, 3, 3]


# ---- ends


def differ_in_steps(rank: Rank, options: dict[str, Any]) -> list[float]:
    model = Point(torch.bfloat16)
    optimizer = SGD(model.parameters(), lr=RATE)
    with halos(model, optimizer, outer_momentum=0.0, **options) as strategy:
        for _ in range(2):
            take_steps(model, optimizer, rank.rank, range(3 + 4 * rank.rank))
            strategy.settle()
        assert strategy.stats()["steps"] == 2 * (3 + 4 * rank.rank)
        dist.barrier()
        found = centre_of(strategy, model)
        dist.barrier()
        take_steps(model, optimizer, rank.rank, range(1 + rank.rank))
    after = torch.stack([torch.empty(ELEMENTS) for _ in range(rank.size)])
    dist.all_gather(list(after), model.weight.detach().float())
    assert torch.equal(after[0], after[1]), "members of a group leave with equal values"
    return found


@pytest.mark.parametrize(
    "options", [{}, {"fragment_sync_delay": 2, "fragment_update_alpha": 0.5}, {"sync_every": (2, 12)}]
)
def test_workers_may_differ_in_steps(options: dict[str, Any]) -> None:
    results = run_ranks(differ_in_steps, 3, options, timeout_s=RUN_S)
    assert results[0] == results[1] == results[2]
    assert 0.1 < np.mean(results[0]) - 1 < 2, "all pull upwards from 1: to 0.5 in one group, to 2 in the other"


def constant(rank: Rank, delay: int) -> list[float]:
    """Steps of one length for each worker, and other numbers of them in each group."""
    model = Point()
    optimizer = SGD(model.parameters(), lr=1.0)
    with halos(model, optimizer, outer_lr=2.0, outer_momentum=0.0, fragment_sync_delay=delay) as strategy:
        for _ in range(21 if rank.rank < 2 else 6):
            model.weight.grad = torch.full((ELEMENTS,), -1.0 if rank.rank else -3.0)
            optimizer.step()
        strategy.settle()
        dist.barrier()
        found = centre_of(strategy, model)
        dist.barrier()
        return found


@pytest.mark.parametrize("delay", [0, 2])
def test_no_step_is_lost(delay: int) -> None:
    # A rate of 2 over two groups adds up what both have done: 21 steps of 2 in the mean, and 6 of 1.
    for found in run_ranks(constant, 3, delay, timeout_s=RUN_S):
        np.testing.assert_allclose(found, 1 + 21 * 2 + 6 * 1, rtol=1e-6)


def lose(rank: Rank, dead: int) -> tuple[str, int, float]:
    """Train until a worker is killed, and on; return what this one heard, its pushes, and how far it got."""
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    heard, pushes = "", 0
    goes_on = [other for group in GROUPS if dead not in group for other in group]
    try:
        with halos(model, optimizer, outer_momentum=0.0, outer_lr=1.0, fragment_sync_delay=2) as strategy:
            rank.meet("begun", timeout_s=SOON_S)  # else nobody may be left who has the dead one's values
            for step in range(80):
                if step == 20 and rank.rank == dead:
                    rank.mark("lost")
                    os.kill(os.getpid(), signal.SIGKILL)
                if step == 20 and rank.rank in goes_on:
                    rank.wait_for("lost", dead, SOON_S)
                begun = time.perf_counter()
                take_steps(model, optimizer, 3, range(step, step + 1))  # all pull at 3
                assert time.perf_counter() - begun < SOON_S
                pushes = strategy.stats()["pushes"]
            strategy.settle()
            error = float(np.abs(np.array(centre_of(strategy, model)) - 3).mean())
            rank.mark("looked")
            for other in goes_on:
                rank.wait_for("looked", other, SOON_S)
    except CommunicatorError as failed:
        return str(failed), pushes, float("inf")
    return heard, pushes, error


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_a_death_ends_its_group_alone(dead: int) -> None:
    results = run_ranks(lose, 3, dead, killed=[dead], timeout_s=RUN_S)
    for rank in {0, 1, 2} - {dead}:
        heard, pushes, error = results[rank]
        if dead < 2 and rank < 2:
            assert "needs all workers" in heard
        else:
            assert not heard
            assert pushes == 20
            assert error < 0.1, "it begins at 2"


def lose_the_server(rank: Rank) -> str:
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    with halos(model, optimizer, servers=[2]) as strategy:
        if rank.rank == 2:
            for other in GROUPS[0]:
                rank.wait_for("ready", other, SOON_S)
            os.kill(os.getpid(), signal.SIGKILL)
        take_steps(model, optimizer, rank.rank, range(6))
        rank.mark("ready")
        try:
            for step in range(6, 600):
                time.sleep(0.01)
                take_steps(model, optimizer, rank.rank, range(step, step + 1))
        except CommunicatorError as failed:
            heard = str(failed)
            strategy.close(wait=False)
            return heard
    return ""


def test_the_last_server_dies() -> None:
    heard = run_ranks(lose_the_server, 3, killed=[2], timeout_s=RUN_S)
    assert "rank 2" in heard[0] or "server" in heard[0], heard[0]
    assert "another worker has left local steps after an error" in heard[1]


def fail(rank: Rank) -> str:
    """One member of a group leaves with an error of its own."""
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    try:
        with halos(model, optimizer) as strategy:
            rank.meet("begun")  # else nobody may be left who has the values that the other group still begins with
            take_steps(model, optimizer, rank.rank, range(7))
            if rank.rank == 1:
                raise ZeroDivisionError("of the script")
            take_steps(model, optimizer, rank.rank, range(7, 20))
            return str(strategy.stats()["pushes"])
    except (CommunicatorError, ZeroDivisionError) as failed:
        heard = str(failed)
    rank.mark("heard")  # else the other one could hear of the end of this process first
    for other in GROUPS[0]:
        rank.wait_for("heard", other, SOON_S)
    return heard


def test_a_failure_is_told_to_its_group_alone() -> None:
    heard = run_ranks(fail, 3, timeout_s=RUN_S)
    assert "another worker has left local steps after an error" in heard[0]
    assert heard[1:] == ["of the script", "5"]


def save_and_go_on(rank: Rank, path: str) -> None:
    options = {"group_momentum": 0.5, "outer_lr": 0.5, "fragment_sync_delay": 2}
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    with halos(model, optimizer, **options) as strategy:
        take_steps(model, optimizer, rank.rank, range(10))
        strategy.settle()
        dist.barrier()
        pushes = strategy.stats()["pushes"]
        strategy.settle()  # now that all have pushed both groups take the same values
        assert strategy.stats()["pushes"] == pushes, "there is nothing to push"
        dist.barrier()
        saved = centre_of(strategy, model)
        torch.save(strategy.state_dict(), f"{path}.{rank.rank}")
        dist.barrier()
        # Both groups push once, so that the order does not count.
        take_steps(model, optimizer, rank.rank, range(10, 12))
        strategy.settle()
        dist.barrier()
        expected = centre_of(strategy, model)
        dist.barrier()
    state = torch.load(f"{path}.{rank.rank}", weights_only=True)
    again = Point()
    optimizer = SGD(again.parameters(), lr=RATE)
    with halos(again, optimizer, **options) as strategy:
        take_steps(again, optimizer, rank.rank, range(5))  # a push may be under way
        dist.barrier()
        strategy.load_state_dict(state if rank.rank != 1 else None)
        assert strategy.stats()["steps"] == 10
        assert again.weight.tolist() == saved == centre_of(strategy, again)
        dist.barrier()
        take_steps(again, optimizer, rank.rank, range(10, 12))
        strategy.settle()
        dist.barrier()
        np.testing.assert_allclose(centre_of(strategy, again), expected, rtol=1e-6)
        dist.barrier()
    with (
        bs.DiLoCo(again, optimizer, sync_every=2, asynchronous=True) as strategy,
        pytest.raises(ValueError, match="has centre is in 'servers of groups', but the strategy has 'servers'"),
    ):
        strategy.load_state_dict(state)


def test_resume(tmp_path: Any) -> None:
    run_ranks(save_and_go_on, 3, str(tmp_path / "state"), timeout_s=RUN_S)


def end_together(rank: Rank, options: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Workers take other numbers of steps, at other speeds, and then train on."""
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    with bs.DiLoCo(model, optimizer, outer_lr=0.5, outer_momentum=0.5, timeout=60.0, **options) as strategy:
        for epoch in range(2):
            for step in range(10 + 7 * (rank.rank == 2)):
                time.sleep(0.01 * (rank.rank == 2))
                take_steps(model, optimizer, rank.rank, range(step, step + 1))
            strategy.settle(everyone=True)
            found = model.weight.tolist(), centre_of(strategy, model)
            if epoch == 1:
                dist.barrier()
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"sync_every": (2, 4), "groups": GROUPS, "asynchronous": True},
        {"sync_every": (2, 4), "groups": GROUPS, "asynchronous": True, "fragment_sync_delay": 2},
        {"sync_every": (2, 4), "groups": GROUPS, "quorum": 1},
        {"sync_every": 3, "asynchronous": True},
        {"sync_every": 4, "num_fragments": 2, "quorum": 2},
    ],
)
def test_all_end_at_one_centre(options: dict[str, Any]) -> None:
    results = run_ranks(end_together, 3, options, timeout_s=RUN_S)
    for own, centre in results:
        assert own == centre == results[0][0]


def end_alone(rank: Rank) -> str:
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    with bs.DiLoCo(model, optimizer, sync_every=2, asynchronous=True, timeout=8.0) as strategy:
        dist.barrier()
        if rank.rank == 1:
            dist.barrier()
            return ""
        with pytest.raises(CommunicatorError) as caught:
            strategy.settle(everyone=True)
        dist.barrier()
        return str(caught.value)


@pytest.mark.long
def test_one_does_not_come_to_the_end() -> None:
    assert (
        "worker 1 did not come to settle(everyone=True) within 8 s" in run_ranks(end_alone, 2, timeout_s=RUN_S)[0]
    )

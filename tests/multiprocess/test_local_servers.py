# SPDX-License-Identifier: Apache-2.0
"""DiLoCo with the centre at servers on real ranks: asynchronous, and rounds of a quorum; who dies or joins."""

import os
import signal
import time
from typing import Any

import braid.strategies as bs
import numpy as np
import pytest
import torch
import torch.distributed as dist
from event_simulation import replay_local_steps
from ranks import Rank, run_ranks
from torch import nn
from torch.optim import SGD

pytestmark = pytest.mark.multiprocess

ELEMENTS = 50
RATE = 0.1
RUN_S = 200.0


class Point(nn.Module):
    """A vector that is trained by gradients from outside."""

    def __init__(self, elements: int = ELEMENTS) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(elements))


def gradient(worker: int, step: int, at: np.ndarray) -> np.ndarray:
    target = np.random.default_rng((worker, step)).normal(worker, 0.1, at.size)
    return np.asarray(at - target)


def take_steps(model: nn.Module, optimizer: torch.optim.Optimizer, worker: int, steps: range) -> None:
    for step in steps:
        at = model.weight.detach().numpy()
        model.weight.grad = torch.from_numpy(gradient(worker, step, at)).float()
        optimizer.step()


def centre_of(strategy: bs.DiLoCo | bs.LocalSGD, model: nn.Module) -> list[float]:
    with strategy.centre():
        return list(model.weight.tolist())


# ---- asynchronous


def record(rank: Rank, every: int, options: dict[str, Any]) -> tuple[list[int], list[float]]:
    """Train with one server; return the version after each push, and the centre."""
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    with bs.DiLoCo(model, optimizer, sync_every=every, asynchronous=True, servers=[0], **options) as strategy:
        dist.barrier()
        versions = []
        for step in range(12 * every):
            time.sleep(0.001 * (rank.rank % 2))
            take_steps(model, optimizer, rank.rank, range(step, step + 1))
            if (step + 1) % every == 0:
                versions.append(strategy.stats()["last_versions"][0])
        dist.barrier()
        assert strategy.stats()["rounds"] == 12
        return versions, centre_of(strategy, model)


@pytest.mark.parametrize(
    ("ranks", "every", "options", "over"),
    [
        (1, 2, {}, "shm"),
        (3, 3, {}, "tcp"),
        (5, 1, {"momentum_every": 4, "outer_lr": 0.4, "outer_momentum": 0.8}, "shm"),
    ],
)
def test_the_order_of_pushes_explains_the_centre(
    ranks: int, every: int, options: dict[str, Any], over: str
) -> None:
    results = run_ranks(record, ranks, every, options, wire=over, timeout_s=RUN_S)
    workers = {version: worker for worker, (versions, _) in enumerate(results) for version in versions}
    assert len(workers) == 12 * ranks, "two pushes with one version"
    expected = replay_local_steps(
        *([workers[version] for version in sorted(workers)], ranks, np.ones(ELEMENTS), gradient),
        rate=RATE,
        every=every,
        outer_rate=options.get("outer_lr", 0.7),
        outer_momentum=options.get("outer_momentum", 0.9),
        momentum_every=options.get("momentum_every", ranks),
    )
    for _, centre in results:
        np.testing.assert_allclose(centre, expected, rtol=1e-4, atol=1e-5)


def follow_speed(rank: Rank) -> list[int]:
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    options = {"asynchronous": True, "follow_speed": True, "fragment_sync_delay": 1, "compression": "int8"}
    with bs.DiLoCo(model, optimizer, sync_every=20, **options) as strategy:
        found, step = [], 0
        # The fast one trains on until the slow one is done. Else a pause in its last round would be its speed.
        while step < 40 if rank.rank else not (rank.folder / "done.1").exists():
            time.sleep(0.1 if rank.rank else 0.0005)
            take_steps(model, optimizer, rank.rank, range(step, step + 1))
            found.append(strategy.stats()["steps_per_round"])
            step += 1
        rank.mark("done")
        strategy.settle()
        assert torch.isfinite(model.weight).all()
    return found


def test_steps_in_proportion_to_speed() -> None:
    fast, slow = run_ranks(follow_speed, 2, timeout_s=RUN_S)
    assert fast[0] == slow[0] == 20
    assert min(slow) < 10


# ---- rounds of a quorum


def with_all(rank: Rank) -> list[Any]:
    """Rounds of a quorum that is everybody have the results of rounds without servers."""
    found = []
    for kind, options in ((bs.DiLoCo, {"outer_lr": 0.5}), (bs.LocalSGD, {})):
        for way in ({}, {"quorum": rank.size, "grace_s": 60.0}):
            model = Point()
            optimizer = SGD(model.parameters(), lr=RATE)
            with kind(model, optimizer, sync_every=3, **options, **way) as strategy:
                take_steps(model, optimizer, rank.rank, range(13))
                # 4 rounds are over. Afterwards each brings what is left, in another round.
                found.append((model.weight.tolist(), centre_of(strategy, model)))
                strategy.settle()
                found.append((model.weight.tolist(), centre_of(strategy, model)))
    return found


@pytest.mark.parametrize(("ranks", "over"), [(2, "shm"), (3, "tcp")])
def test_a_quorum_of_all(ranks: int, over: str) -> None:
    for found in run_ranks(with_all, ranks, wire=over, timeout_s=RUN_S):
        for rounds, servers in ((0, 2), (1, 3), (4, 6), (5, 7)):
            np.testing.assert_allclose(found[rounds], found[servers], rtol=1e-5, atol=1e-6)


def differ_in_steps(rank: Rank) -> list[float]:
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    with bs.DiLoCo(model, optimizer, sync_every=2, quorum=2, grace_s=0.01) as strategy:
        for _ in range(2):
            take_steps(model, optimizer, rank.rank, range(3 + 6 * rank.rank))
            strategy.settle()  # from here on no round waits for this worker
            dist.barrier()
        assert strategy.stats()["steps"] == 2 * (3 + 6 * rank.rank)
        found = centre_of(strategy, model)
        dist.barrier()
    return found


def test_workers_may_differ_in_steps() -> None:
    results = run_ranks(differ_in_steps, 3, timeout_s=RUN_S)
    assert results[0] == results[1] == results[2]
    assert np.isfinite(results[0]).all()


def survive(rank: Rank) -> dict[str, Any]:
    """Of three workers one is slow and one is killed; a fourth comes late."""
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    options: dict[str, Any] = {"sync_every": 2, "quorum": 2, "grace_s": 0.02, "timeout": 60.0}
    late = rank.size - 1
    if rank.rank < late:
        rank.join(members=range(late))
        strategy = bs.DiLoCo(model, optimizer, **options)
        rank.meet("begun", range(late), 60.0)  # else nobody may be left who has the dead one's values
    else:
        rank.wait_for("lost", 2, 60.0)
        rank.store = dist.FileStore(str(rank.folder / "store"))
        strategy = bs.DiLoCo(model, optimizer, join=rank.store, **options)
    errors = []
    with strategy:
        for step in range(60):
            if rank.rank == 2 and step == 15:
                rank.mark("lost")
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep({0: 0.002, 1: 0.04, 2: 0.002, 3: 0.002}[rank.rank])
            take_steps(model, optimizer, 3, range(step, step + 1))  # all pull at 3
            if step % 10 == 9:
                errors.append(float(np.abs(np.array(centre_of(strategy, model)) - 3).mean()))
        strategy.settle()
        rounds = strategy.stats()["rounds"]
        rank.mark("trained")
        for other in (0, 1, late):
            rank.wait_for("trained", other, 60.0)
        centre = centre_of(strategy, model)
        rank.mark("looked")
        for other in (0, 1, late):
            rank.wait_for("looked", other, 60.0)
    return {"rounds": rounds, "errors": errors, "centre": centre}


@pytest.mark.long
@pytest.mark.parametrize("over", ["shm", "tcp"])
def test_who_dies_or_is_slow_stops_nobody(over: str) -> None:
    results = run_ranks(survive, 4, wire=over, join=False, killed=[2], timeout_s=RUN_S)
    living = [results[rank] for rank in (0, 1, 3)]
    for found in living:
        assert found["rounds"] == 30
        assert found["centre"] == living[0]["centre"]
        assert np.isfinite(found["centre"]).all()
        assert found["errors"][-1] < 0.2, "it begins at 2, and goes on to fall after the death"
    assert living[2]["errors"][0] < 1, "the late one begins at the centre"


def save_and_go_on(rank: Rank, path: str) -> None:
    options: dict[str, Any] = {"sync_every": 2, "quorum": rank.size}
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    with bs.DiLoCo(model, optimizer, **options) as strategy:
        take_steps(model, optimizer, rank.rank, range(7))
        torch.save([strategy.state_dict(), model.state_dict()], f"{path}.{rank.rank}")
        take_steps(model, optimizer, rank.rank, range(7, 12))
        expected = centre_of(strategy, model)
        dist.barrier()
    state, of_model = torch.load(f"{path}.{rank.rank}", weights_only=True)
    again = Point()
    optimizer = SGD(again.parameters(), lr=RATE)
    with bs.DiLoCo(again, optimizer, **options) as strategy:
        again.load_state_dict(of_model)
        strategy.load_state_dict(state)
        assert strategy.stats()["steps"] == 7
        dist.barrier()
        take_steps(again, optimizer, rank.rank, range(7, 12))
        np.testing.assert_allclose(centre_of(strategy, again), expected, rtol=1e-6)
        dist.barrier()
    with (
        bs.DiLoCo(again, optimizer, sync_every=2) as strategy,
        pytest.raises(ValueError, match="has centre is in 's"),
    ):
        strategy.load_state_dict(state)


def test_resume(tmp_path: Any) -> None:
    run_ranks(save_and_go_on, 2, str(tmp_path / "state"), timeout_s=RUN_S)

# SPDX-License-Identifier: Apache-2.0
"""Gossip on real ranks: mass when a worker is killed, training while workers die and come, and saving."""

import os
import signal
import threading
import time
from typing import Any

import braid
import braid.strategies as bs
import numpy as np
import pytest
import torch
import torch.distributed as dist
from digits import accuracy, batches, network
from ranks import SOON_S, Rank, run_ranks
from slowness import limit
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector
from torch.optim import SGD
from waiting import eventually

pytestmark = pytest.mark.multiprocess

ELEMENTS = 4096
LATE_S = limit(60.0)


class Point(nn.Module):
    """A vector that is trained by gradients from outside."""

    def __init__(self, elements: int = ELEMENTS) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(elements))


def begin(**options: Any) -> tuple[Point, SGD, bs.Gossip]:
    model = Point()
    optimizer = SGD(model.parameters(), lr=0.1)
    return model, optimizer, bs.Gossip(model, optimizer, timeout=LATE_S, **options)


# ---- mass


def lose_one(rank: Rank, mode: str) -> Any:
    """Exchange without training; the last rank is killed at some moment of its exchanges."""
    living, dies = list(range(rank.size - 1)), rank.size - 1
    with begin(mode=mode)[2] as strategy:
        values = torch.zeros(ELEMENTS)
        values[rank.rank :: rank.size] = 1.0  # so that the mass tells whose it is
        strategy._local.install(values)
        rank.meet("ready")
        engine = strategy._engine
        assert engine is not None
        if rank.rank == dies:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()

        def has_met() -> bool:
            stats = strategy.stats()
            return dies not in stats["peers"] and (stats["exchanges"] > 20 or not stats["is_active"])

        until = time.monotonic() + 2.0
        while time.monotonic() < until or not has_met():
            begun = time.monotonic()
            engine.due()
            assert time.monotonic() - begun < SOON_S
            time.sleep(5e-4)
        strategy.settle()
        rank.meet("rest", living, LATE_S)
        state, stats = strategy.state_dict(), strategy.stats()
        with strategy.centre():
            centre = strategy._prepared.together.tensors[0].clone()
        (row,) = (row for row in braid.stats() if row["group"].startswith("parameters"))
        assert row["parameters"]["exchanges"] == stats["exchanges"]
        assert row in braid.flight_record()["parameter_services"]
        rank.meet("looked", living, LATE_S)
        return state["values"].double().numpy() * state["weight"], stats, centre.numpy()


@pytest.mark.parametrize(
    ("mode", "over"), [("push_sum", "shm"), pytest.param("symmetric", "tcp", marks=pytest.mark.long)]
)
def test_the_mass_of_the_dead_never_counts_twice(mode: str, over: str) -> None:
    results = run_ranks(lose_one, 4, mode, wire=over, killed=[3])[:3]
    for worker, (_, stats, centre) in enumerate(results):
        assert stats["peers"] == [other for other in range(3) if other != worker]
        assert over in str(stats["wires"])
        np.testing.assert_array_equal(centre, results[0][2])
        assert stats["exchanges"] > 20 or not stats["is_active"]
    mass = np.array([values.reshape(-1, 4).mean(0) for values, *_ in results])  # by worker, and whose it is
    weights = np.array([stats["weight"] for _, stats, _ in results])
    # All that has come from a worker has come with its weight.
    np.testing.assert_allclose(mass.sum(1), weights, rtol=1e-5)
    # None of it has doubled; what the dead one had is gone.
    assert mass.sum(0).max() <= 1.0 + 1e-5
    assert 0 < weights.sum() < 4
    assert sum(stats["lost_exchanges"] for _, stats, _ in results) <= 3


# ---- training while workers die and come


def train(rank: Rank, mode: str) -> Any:
    beginners, dies = rank.size - 1, 2
    torch.manual_seed(rank.rank)
    model = network()
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
    options: dict[str, Any] = {"mode": mode, "timeout": LATE_S}
    if rank.rank < beginners:
        rank.join(members=range(beginners), timeout_s=LATE_S)
    else:
        rank.wait_for("half", 0, LATE_S)
        rank.store = dist.FileStore(str(rank.folder / "store"))
        options["join"] = rank.store
    living = [0, 1, 3, 4]
    slowest = 0.0
    vectors = [parameters_to_vector(model.parameters()).detach()]
    with bs.Gossip(model, optimizer, **options) as strategy:
        vectors.append(parameters_to_vector(model.parameters()).detach())
        for step, (images, labels) in enumerate(batches(rank.rank % beginners, beginners, epochs=6)):
            begun = time.monotonic()
            if rank.rank == dies and step == 12:
                rank.mark("dies")
                os.kill(os.getpid(), signal.SIGKILL)
            if step == 24:
                vectors.append(parameters_to_vector(model.parameters()).detach())
                rank.mark("half")
                if rank.rank < beginners:
                    rank.wait_for("joined", 4, LATE_S)
                    begun = time.monotonic()
            if rank.rank == beginners and step == 0:
                rank.mark("joined")
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
            slowest = max(slowest, time.monotonic() - begun)
        strategy.settle()
        rank.meet("trained", living, LATE_S)
        rank.wait_for("dies", dies, LATE_S)
        with strategy.centre():
            found = accuracy(model)
        rank.meet("looked", living, LATE_S)

        def only_the_living() -> bool:
            with strategy.centre():
                return set(strategy.stats()["peers"]) <= set(living)

        eventually(only_the_living, lambda: f"an end of the dead, of {strategy.stats()['peers']},")
        stats = strategy.stats()
        rank.meet("over", living, LATE_S)
    return [vector.numpy() for vector in vectors], found, slowest, stats


@pytest.mark.long
@pytest.mark.parametrize(("mode", "over"), [("symmetric", "shm"), ("push_sum", "tcp")])
def test_the_curve_goes_on(mode: str, over: str) -> None:
    results = run_ranks(train, 5, mode, wire=over, join=False, killed=[2], timeout_s=240)
    for worker in (0, 1, 3, 4):
        _, found, slowest, stats = results[worker]
        assert found > 0.85, found
        assert slowest < SOON_S, slowest
        assert set(stats["peers"]) <= {0, 1, 3, 4}
    # The late one began near the mean of the others, which are apart, and not with its own random values.
    mean = np.mean([results[worker][0][2] for worker in (0, 1, 3)], 0)
    own, begun = (np.linalg.norm(vector - mean) for vector in results[4][0][:2])
    assert begun < 0.75 * own, (begun, own)


# ---- saving


def save(rank: Rank, path: str, resumes: bool) -> Any:
    model, optimizer, strategy = begin(mode="push_sum", sync_every=2)
    with strategy:
        if resumes:
            state = torch.load(f"{path}.{rank.rank}", weights_only=True) if rank.rank < 2 else None
            strategy.load_state_dict(state)
        else:
            for _ in range(11):
                model.weight.grad = torch.full((ELEMENTS,), float(rank.rank))
                optimizer.step()
            strategy.settle()
            dist.barrier()
            torch.save(strategy.state_dict(), f"{path}.{rank.rank}")
        weight = strategy.stats()["weight"]
        with strategy.centre():
            centre = model.weight.tolist()
        dist.barrier()
        return centre, weight, strategy.stats()["steps"]


def test_resume(tmp_path: Any) -> None:
    path = str(tmp_path / "state")
    saved = run_ranks(save, 2, path, False)
    assert saved[0][0] == saved[1][0]
    for ranks in (2, 3):
        for worker, (centre, weight, steps) in enumerate(run_ranks(save, ranks, path, True)):
            np.testing.assert_allclose(centre, saved[0][0], rtol=1e-5)
            assert steps == 11
            assert weight == (saved[worker][1] if worker < 2 else 1.0)

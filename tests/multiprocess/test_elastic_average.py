# SPDX-License-Identifier: Apache-2.0
"""Elastic averaging on real ranks: what it computes, and who dies, joins and leaves."""

import os
import signal
import time
from typing import Any

import braid
import braid.strategies as bs
import numpy as np
import pytest
import torch
import torch.distributed as dist
from digits import accuracy, batches, network
from event_simulation import replay_elastic, replay_rounds
from ranks import SOON_S, Rank, run_ranks
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

pytestmark = pytest.mark.multiprocess

ELEMENTS = 50
RATE = 0.1


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


def centre_of(strategy: bs.ElasticAverage, model: nn.Module) -> list[float]:
    with strategy.centre():
        return list(model.weight.tolist())


# ---- what is computed in rounds


def join_gloo(rank: Rank) -> None:
    rank.store = dist.FileStore(str(rank.folder / "store"))
    dist.init_process_group("gloo", store=rank.store, rank=rank.rank, world_size=rank.size)


def rounds(rank: Rank, backend: str) -> list[Any]:
    if backend == "gloo":
        join_gloo(rank)
    found = []
    last = rank.size - 1
    for schedule, options in (
        ("sync1", {}),
        ("sync1", {}),
        ("sync2", {"root": 0}),
        ("sync3", {"root": 0}),
        ("sync2", {}),
        ("sync2", {"root": last}),
    ):
        model = Point()
        optimizer = SGD(model.parameters(), lr=RATE)
        with bs.ElasticAverage(model, optimizer, sync_every=2, schedule=schedule, **options) as strategy:
            take_steps(model, optimizer, rank.rank, range(12))
            if rank.rank == 0:  # the centre needs nobody else
                centre_of(strategy, model)
            stats = strategy.stats()
            assert (stats["rounds"], stats["last_workers"]) == (6, rank.size)
            assert stats["root"] == options.get("root", stats["root"])
            found.append((model.weight.tolist(), centre_of(strategy, model)))
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    with bs.ElasticAverage(model, optimizer, sync_every=1, beta=1.0, schedule="sync2") as strategy:
        take_steps(model, optimizer, rank.rank, range(6))
        found.append((model.weight.tolist(), centre_of(strategy, model)))
    return found


@pytest.mark.parametrize(("ranks", "backend"), [(1, "braid"), (2, "braid"), (3, "gloo"), (5, "braid")])
def test_rounds(ranks: int, backend: str) -> None:
    results = run_ranks(rounds, ranks, backend, join=backend == "braid")
    options = {"rate": RATE, "every": 2, "alpha": 0.9 / ranks}
    expected = replay_rounds(6, ranks, np.ones(ELEMENTS), gradient, **options)
    for worker, ours in enumerate(results):
        own, centres = zip(*ours, strict=True)
        assert own[0] == own[1] == own[2] == own[3]
        assert centres[0] == centres[1] == centres[2] == centres[3]
        assert centres == tuple(centre for _, centre in results[0])
        for case in range(6):
            np.testing.assert_allclose(own[case], expected.workers[worker], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(centres[case], expected.centre, rtol=1e-5, atol=1e-6)
        options = {"rate": RATE, "every": 1, "alpha": 1 / ranks}
        mean = np.mean(replay_rounds(5, ranks, np.ones(ELEMENTS), gradient, **options).workers, 0)
        np.testing.assert_allclose(centres[6], mean, rtol=1e-5, atol=1e-6)


def differ_in_steps(rank: Rank) -> list[Any]:
    found = []
    for schedule in ("sync1", "sync3"):
        torch.manual_seed(rank.rank)
        model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        optimizer = SGD(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        with bs.ElasticAverage(model, optimizer, sync_every=2, schedule=schedule) as strategy:
            for epoch in range(2):
                for step in range(5 + 2 * rank.rank):
                    optimizer.zero_grad()
                    x = torch.randn(8, 4)
                    is_bad = rank.rank == 1 and epoch == 0 and step in (1, 2)
                    loss = (model(x).sum(1) - x.sum(1)).square().mean() * (float("inf") if is_bad else 1.0)
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
                strategy.settle()
                dist.barrier()  # now nobody is in a round
            with strategy.centre():
                state = {name: value.clone() for name, value in model.state_dict().items()}
            assert all(value.isfinite().all() for value in state.values())
            found.append(torch.cat([value.flatten() for value in state.values() if value.is_floating_point()]))
            stats = strategy.stats()
            assert stats["steps"] == 2 * (5 + 2 * rank.rank) - 2 * (rank.rank == 1)
            for _ in range(rank.rank):  # whoever ends early answers the others in close()
                model(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()
    return found


def test_workers_may_differ_in_steps() -> None:
    results = run_ranks(differ_in_steps, 3, wire="tcp")
    for ours in results[1:]:
        for mine, first in zip(ours, results[0], strict=True):
            assert torch.equal(mine, first)


# ---- what is computed at servers


def record(rank: Rank, schedule: str, every: int) -> tuple[list[int], list[float], list[float]]:
    """Train with one server; return the version after each exchange, this worker's values and the centre."""
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    with bs.ElasticAverage(model, optimizer, sync_every=every, schedule=schedule, servers=[0]) as strategy:
        dist.barrier()
        versions = []
        for step in range(20 * every):
            time.sleep(0.001 * (rank.rank % 2))
            take_steps(model, optimizer, rank.rank, range(step, step + 1))
            if (step + 1) % every == 0:
                versions.append(strategy.stats()["last_versions"][0])
        own = model.weight.tolist()
        dist.barrier()
        return versions, own, centre_of(strategy, model)


@pytest.mark.parametrize(
    ("ranks", "schedule", "every", "over"),
    [
        (1, "first_come", 1, "shm"),
        (1, "hogwild", 2, "shm"),
        (2, "round_robin", 3, "tcp"),
        (3, "first_come", 2, "tcp"),
        (5, "round_robin", 1, "shm"),
    ],
)
def test_the_order_of_exchanges_explains_the_result(ranks: int, schedule: str, every: int, over: str) -> None:
    results = run_ranks(record, ranks, schedule, every, wire=over)
    workers = {version: worker for worker, (versions, _, _) in enumerate(results) for version in versions}
    assert len(workers) == 20 * ranks, "two exchanges with one version"
    order = [workers[version] for version in sorted(workers)]
    if schedule == "round_robin":
        assert order == list(range(ranks)) * 20
    options = {"alpha": 0.9 / ranks, "rate": RATE, "every": every}
    expected = replay_elastic(order, ranks, np.ones(ELEMENTS), gradient, **options)
    for worker, (_, own, centre) in enumerate(results):
        np.testing.assert_allclose(own, expected.workers[worker], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(centre, expected.centre, rtol=1e-4, atol=1e-5)


def near_the_bound(rank: Rank) -> list[float]:
    found = []
    for factor in (0.96, 1.04):
        model = Point(1)
        optimizer = SGD(model.parameters(), lr=1.0)
        alpha = factor * 2 / 3  # (4 - 2 eta) / (4 - eta)
        with bs.ElasticAverage(model, optimizer, sync_every=1, alpha=alpha, schedule="round_robin") as strategy:
            for _ in range(150):
                model.weight.grad = model.weight.detach().clone()
                optimizer.step()
            found.append(abs(centre_of(strategy, model)[0]))
    return found


def test_the_bound_of_round_robin() -> None:
    for stable, unstable in run_ranks(near_the_bound, 3):
        assert stable < 0.1
        assert unstable > 10


def train_digits(rank: Rank) -> dict[str, float]:
    found = {}
    for schedule in ("first_come", "hogwild", "round_robin", "sync2", "sync3"):
        torch.manual_seed(rank.rank)
        model = network()
        optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
        with bs.ElasticAverage(model, optimizer, sync_every=4, schedule=schedule) as strategy:
            for images, labels in batches(rank.rank, rank.size, epochs=12):
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
            strategy.settle()
            dist.barrier()
            with strategy.centre():
                found[schedule] = accuracy(model)
    return found


@pytest.mark.slow
@pytest.mark.long
def test_digits_are_learnt() -> None:
    for found in run_ranks(train_digits, 3):
        assert min(found.values()) > 0.85, found


# ---- who dies, fails, joins and comes back


def lose_one(rank: Rank, schedule: str) -> Any:
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    dist.barrier()
    try:
        with bs.ElasticAverage(model, optimizer, sync_every=1, schedule=schedule, timeout=60.0) as strategy:
            for step in range(40):
                if rank.rank == 2 and step == 15:
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(0.002)
                begun = time.monotonic()
                take_steps(model, optimizer, rank.rank, range(step, step + 1))
                assert time.monotonic() - begun < SOON_S
            assert np.isfinite(centre_of(strategy, model)).all()
            return strategy.stats()["rounds"]
    except braid.CommunicatorError as error:
        assert time.monotonic() - begun < SOON_S
        return str(error)


@pytest.mark.parametrize(("schedule", "over"), [("first_come", "shm"), ("round_robin", "tcp")])
def test_the_others_go_on_when_a_worker_dies(schedule: str, over: str) -> None:
    assert run_ranks(lose_one, 3, schedule, wire=over, killed=[2])[:2] == [40, 40]


@pytest.mark.parametrize(("schedule", "over"), [("sync1", "tcp"), ("sync3", "shm")])
def test_rounds_end_when_a_worker_dies(schedule: str, over: str) -> None:
    for text in run_ranks(lose_one, 3, schedule, wire=over, killed=[2])[:2]:
        assert text.startswith("a round of elastic averaging failed, which needs all workers: ")
        assert "\n" not in text


def fail_one(rank: Rank, schedule: str) -> str:
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    try:
        with bs.ElasticAverage(model, optimizer, sync_every=2, schedule=schedule):
            take_steps(model, optimizer, rank.rank, range(3))
            if rank.rank == rank.size - 2:
                raise KeyError("the user's own")
            take_steps(model, optimizer, rank.rank, range(3, 9))
    except (KeyError, braid.CommunicatorError) as error:
        for other in range(rank.size):
            rank.mark("heard")
            rank.wait_for("heard", other)
        return type(error).__name__ + str(error)
    return "all is well"


@pytest.mark.parametrize(("size", "schedule"), [(2, "sync3"), (3, "sync1")])
def test_the_others_hear_of_an_error(size: int, schedule: str) -> None:
    texts = run_ranks(fail_one, size, schedule)
    assert texts.pop(size - 2).startswith("KeyError")  # of rank 0, which has the centre, or of rank 1
    for text in texts:
        assert "another worker has left elastic averaging after an error" in text


def come_late(rank: Rank) -> list[float]:
    beginners = rank.size - 1
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    if rank.rank < beginners:
        rank.join(members=range(beginners))
        strategy = bs.ElasticAverage(model, optimizer, sync_every=2, servers=[0, 1])
    else:
        rank.wait_for("begun", 0)
        rank.store = dist.FileStore(str(rank.folder / "store"))
        strategy = bs.ElasticAverage(model, optimizer, sync_every=2, servers=[0, 1], join=rank.store, timeout=60.0)
    with strategy:
        rank.mark("begun")
        take_steps(model, optimizer, rank.rank, range(10))
        assert strategy.stats()["rounds"] == 5
        rank.mark("trained")
        for other in range(rank.size):
            rank.wait_for("trained", other)
        found = centre_of(strategy, model)
        rank.mark("looked")
        for other in range(rank.size):
            rank.wait_for("looked", other)
    return found


def test_a_worker_joins_late() -> None:
    results = run_ranks(come_late, 3, join=False)
    assert results[0] == results[1] == results[2]
    assert np.mean(results[0]) > 0.5  # worker 2 pulls it to 2


SAVED = ("first_come", "sync2", "sync3")


def save(rank: Rank, path: str) -> list[Any]:
    found = []
    for schedule in SAVED:
        model = Point()
        optimizer = SGD(model.parameters(), lr=RATE, momentum=0.9)
        with bs.ElasticAverage(model, optimizer, sync_every=4, beta=0.8, schedule=schedule) as strategy:
            take_steps(model, optimizer, rank.rank, range(7))
            dist.barrier()
            states = [strategy.state_dict(), model.state_dict(), optimizer.state_dict()]
            torch.save(states, f"{path}.{schedule}.{rank.rank}")
            take_steps(model, optimizer, rank.rank, range(7, 9))
            found.append([model.weight.tolist(), centre_of(strategy, model)])
    return found


def resume(rank: Rank, path: str) -> list[Any]:
    found = []
    for schedule in SAVED:
        model = Point()
        optimizer = SGD(model.parameters(), lr=RATE, momentum=0.9)
        with bs.ElasticAverage(model, optimizer, sync_every=4, beta=0.8, schedule=schedule) as strategy:
            state = None
            if rank.rank < 2:
                state, of_model, of_optimizer = torch.load(f"{path}.{schedule}.{rank.rank}", weights_only=True)
                model.load_state_dict(of_model)
                optimizer.load_state_dict(of_optimizer)
            strategy.load_state_dict(state)
            assert strategy.alpha == 0.8 / rank.size
            begun = [model.weight.tolist(), centre_of(strategy, model)]
            dist.barrier()
            take_steps(model, optimizer, rank.rank, range(7, 9))
            found.append([begun, [model.weight.tolist(), centre_of(strategy, model)]])
    return found


def test_resume(tmp_path: Any) -> None:
    path = str(tmp_path / "state")
    saved = run_ranks(save, 2, path)
    centres = [torch.load(f"{path}.{schedule}.0", weights_only=True)[0]["centre"].tolist() for schedule in SAVED]
    for worker, ours in enumerate(run_ranks(resume, 2, path)):
        assert [after for _, after in ours[1:]] == saved[worker][1:]  # rounds have the same bits again
    for ranks in (1, 3):
        for worker, ours in enumerate(run_ranks(resume, ranks, path)):
            assert [begun[1] for begun, _ in ours] == centres
            if worker == 2:
                assert [begun[0] for begun, _ in ours] == centres


def use_a_subgroup(rank: Rank) -> list[Any]:
    gloo = dist.new_group([0, 2], backend="gloo")
    found = []
    if rank.rank == 1:
        return found
    for schedule in ("first_come", "sync2", "sync3"):
        model = Point()
        optimizer = SGD(model.parameters(), lr=RATE)
        with bs.ElasticAverage(model, optimizer, sync_every=2, schedule=schedule, process_group=gloo) as strategy:
            take_steps(model, optimizer, rank.rank // 2, range(12))
            dist.barrier(gloo)
            found.append(centre_of(strategy, model))
    return found


def test_a_group_of_another_backend() -> None:
    first, _, last = run_ranks(use_a_subgroup, 3)
    assert first == last
    expected = replay_rounds(6, 2, np.ones(ELEMENTS), gradient, alpha=0.45, rate=RATE, every=2)
    for centre in first[1:]:
        np.testing.assert_allclose(centre, expected.centre, rtol=1e-5, atol=1e-6)


def count_copies(rank: Rank) -> list[float]:
    """Return how many copies of the parameters a strategy keeps beside the model, with servers and in rounds."""
    join_gloo(rank)
    found = []
    for options in ({"schedule": "first_come"}, {"schedule": "round_robin"}, {"schedule": "sync1"}):
        model = nn.Linear(100, 50, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with bs.ElasticAverage(model, optimizer, sync_every=1, **options) as strategy:
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.ones(4, 100)).square().mean().backward()
                optimizer.step()
            before = [parameter.detach().clone() for parameter in model.parameters()]
            with strategy.centre():
                centre = [parameter.detach().clone() for parameter in model.parameters()]
            assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
            assert all(torch.isfinite(each).all() for each in centre)
            found.append(strategy.stats()["vector_bytes"] / before[0].nbytes)
            strategy.settle()
    return found


def test_two_copies_beside_the_model() -> None:
    for servers_as_they_come, servers_in_turns, rounds_of_all in run_ranks(count_copies, 2, join=False):
        assert (servers_as_they_come, servers_in_turns) == (2, 2)
        assert rounds_of_all == pytest.approx(3, abs=0.01)  # and a few numbers that say who takes part

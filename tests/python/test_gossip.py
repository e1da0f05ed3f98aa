# SPDX-License-Identifier: Apache-2.0
"""Gossip against what it must compute. Workers are threads of one process; their vectors are at real services."""

import threading
import time
from typing import Any

import braid.strategies as bs
import numpy as np
import pytest
import torch
from braid.strategies.gossip.engine import Engine
from event_simulation import replay_gossip
from fake_cluster import Cluster, must_work
from slowness import limit
from torch import Tensor, nn
from torch.optim import SGD

pytestmark = pytest.mark.unit

ELEMENTS = 40
SIZES = [1, 2, 3, 5]


class Point(nn.Module):
    """A vector that is trained by gradients from outside."""

    def __init__(self, elements: int = ELEMENTS, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(elements, dtype=dtype))

    def step(self, optimizer: torch.optim.Optimizer, gradient: Tensor) -> None:
        self.weight.grad = gradient.to(self.weight.dtype)
        optimizer.step()


def begin(**options: Any) -> tuple[Point, SGD, bs.Gossip]:
    model = Point()
    optimizer = SGD(model.parameters(), lr=1.0)
    return model, optimizer, bs.Gossip(model, optimizer, timeout=60, **options)


def engine_of(strategy: bs.Gossip) -> Engine:
    assert strategy._engine is not None
    return strategy._engine


def weighted(strategy: bs.Gossip) -> tuple[np.ndarray, float]:
    """Return what a worker's vector holds, times its weight if the mode has weights; and the weight."""
    state = strategy.state_dict()
    return state["values"].double().numpy() * state["weight"], state["weight"]


def scatter(strategy: bs.Gossip, worker: int) -> np.ndarray:
    """Give each worker values of its own."""
    values = torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(worker))
    strategy._local.install(values)
    return values.double().numpy()


# ---- averaging alone, in lockstep


def lockstep(worker: int, workers: int, mode: str, rounds: int, gate: threading.Barrier) -> list[Any]:
    with begin(mode=mode)[2] as strategy:
        first = scatter(strategy, worker)
        engine, found = engine_of(strategy), [(first, 1.0)]
        gate.wait()
        for turn in range(rounds):
            number = engine.choice.next(range(workers), turn)
            if number is not None:
                assert engine.exchange.read()
            gate.wait()
            if number is not None:
                peer = engine._members.vector(number)
                assert peer is not None
                engine.exchange.send(peer)
            gate.wait()
            found.append(weighted(strategy))
            gate.wait()
        return found


@pytest.mark.parametrize("workers", [*SIZES, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", ["push_sum", "dissemination"])
def test_the_exponential_graph_averages(mode: str, workers: int, cluster: Cluster) -> None:
    rounds, gate = 12, threading.Barrier(workers, timeout=limit(60))
    results = must_work(cluster.run(lockstep, workers, workers, mode, rounds, gate))
    sums = np.array([[values for values, _ in worker] for worker in results])
    weights = np.array([[weight for _, weight in worker] for worker in results])
    mean = sums[:, 0].mean(0)
    errors = np.abs(sums / weights[..., None] - mean).max((0, 2))
    if mode == "push_sum":
        np.testing.assert_allclose(sums.sum(0), np.broadcast_to(workers * mean, sums.sum(0).shape), atol=1e-5)
        np.testing.assert_allclose(weights.sum(0), workers, rtol=1e-6)
    lap = (workers - 1).bit_length()
    if workers == 1 << lap:  # exact, up to rounding, after one message of each power of two
        assert errors[lap] < 1e-6
    else:  # geometrically
        assert errors[-1] < 2e-2 * errors[0]
        assert errors[3 * lap] < 0.5 * errors[lap]


# ---- training threads and exchanges at the same time


def exchange_for(worker: int, workers: int, mode: str, graph: Any, gate: threading.Barrier) -> Any:
    """Exchange at random times while others do, without steps; then let all come to rest."""
    with begin(mode=mode, graph=graph)[2] as strategy:
        first = scatter(strategy, worker)
        gate.wait()
        engine, random = engine_of(strategy), np.random.default_rng(worker)
        for turn in range(60):
            if turn % 10 == 0:
                gate.wait()  # none may end long before another one begins
            engine.due()
            time.sleep(random.uniform(0, 2e-3))
            if random.random() < 0.3:
                engine.wait()
        strategy.settle()
        gate.wait()
        values, weight = weighted(strategy)
        stats = strategy.stats()
        with strategy.centre():
            centre = next(iter(strategy._prepared.together.tensors)).clone()
        gate.wait()
        return first, values, weight, stats, centre


@pytest.mark.parametrize(
    ("mode", "graph", "workers"),
    [
        *(("symmetric", "bipartite", workers) for workers in SIZES),
        ("symmetric", "auto", 3),
        ("push_sum", "random", 5),
        ("push_sum", "ring", 2),
        *(
            pytest.param(*kind, workers, marks=pytest.mark.long)
            for workers in (5, 8)
            for kind in (("symmetric", "bipartite"), ("symmetric", "exponential"), ("push_sum", "exponential"))
            if (*kind, workers) != ("symmetric", "bipartite", 5)
        ),
        pytest.param("symmetric", "ring", 5, marks=pytest.mark.long),
    ],
)
def test_sums_stay(mode: str, graph: str, workers: int, cluster: Cluster) -> None:
    gate = threading.Barrier(workers, timeout=limit(60))
    results = must_work(cluster.run(exchange_for, workers, workers, mode, graph, gate))
    firsts, values, weights, stats, centres = zip(*results, strict=True)
    np.testing.assert_allclose(np.sum(values, 0), np.sum(firsts, 0), atol=2e-5)
    assert sum(weights) == pytest.approx(workers, rel=1e-6)
    for centre in centres:  # the same bits on all workers
        assert torch.equal(centre, centres[0])
    np.testing.assert_allclose(centres[0], np.mean(firsts, 0), atol=1e-5)
    # They have come together.
    apart = [value / weight - np.mean(firsts, 0) for value, weight in zip(values, weights, strict=True)]
    assert workers == 1 or np.abs(apart).max() < 0.2 * np.abs(np.array(firsts) - np.mean(firsts, 0)).max()
    for worker, row in enumerate(stats):
        assert row["peers"] == [other for other in range(workers) if other != worker]
        assert row["lost_exchanges"] == 0
        assert row["lost_weight"] == 0
        if row["is_active"] and workers > 1:
            assert row["exchanges"] > 5
            assert row["exchanges"] + row["skipped"] <= 61
            bodies = row["sent_bytes"] / 4 / (ELEMENTS + 4)
            assert 0 <= bodies - row["exchanges"] < 4 * workers  # each peer has got the settings, too
        else:
            assert row["exchanges"] == 0


@pytest.mark.parametrize("mode", ["push_sum", "pull", "dissemination"])
def test_two_workers_may_begin_with_each_other_at_once(mode: str, cluster: Cluster) -> None:
    gate = threading.Barrier(2, timeout=limit(60))

    def work(worker: int) -> int:
        with begin(mode=mode, graph="ring")[2] as strategy:
            engine = engine_of(strategy)
            peer = engine._members.vector(1 - worker)
            assert peer is not None
            gate.wait()
            for _ in range(200):
                engine.meet(peer)
            gate.wait()
            return engine.exchanges + engine.skipped

    assert must_work(cluster.run(work, 2)) == [200, 200]


def test_an_atomic_average(cluster: Cluster) -> None:
    """Active workers and a passive one: each exchange leaves both with the mean of both at that moment."""
    gate = threading.Barrier(3, timeout=limit(60))

    def work(worker: int) -> list[Any]:
        found: list[Any] = []
        with begin(graph=[(0, 1), (1, 2)])[2] as strategy:
            strategy._local.install(torch.full((ELEMENTS,), float(2**worker)))
            engine = engine_of(strategy)
            engine.trace = lambda kind, peer, versions: found.append((peer, versions))
            gate.wait()
            if worker != 1:
                peer = engine._members.vector(1)
                assert peer is not None
                for _ in range(20):
                    engine.meet(peer)
            gate.wait()
            values, _ = weighted(strategy)
            gate.wait()
        return [found, values]

    results = must_work(cluster.run(work, 3))
    values = {worker: float(2**worker) for worker in range(3)}
    order = sorted((versions[1], worker) for worker in (0, 2) for _, versions in results[worker][0])
    assert len(order) == 40
    for _, worker in order:
        values[worker] = values[1] = (values[worker] + values[1]) / 2
    for worker in range(3):
        np.testing.assert_allclose(results[worker][1], values[worker], rtol=1e-6)


# ---- a recorded schedule, replayed


def gradient(worker: int, step: int, at: np.ndarray) -> np.ndarray:
    target = np.random.default_rng((worker, step)).normal(worker, 0.1, at.size)
    return np.asarray(at - target)


def train_and_record(worker: int, mode: str, gate: threading.Barrier) -> tuple[list[Any], np.ndarray]:
    """Train for 25 steps; return what happened to the vectors, and this worker's values at the end."""
    rate, log = 0.1, []
    model = Point()
    optimizer = SGD(model.parameters(), lr=rate)
    with bs.Gossip(model, optimizer, mode=mode, graph="random", overlap=worker == 0, timeout=60) as strategy:
        engine = engine_of(strategy)
        engine.trace = lambda kind, peer, versions: log.append((kind, peer, *versions))
        sync, random = strategy._local.sync, np.random.default_rng(worker)
        base = [0]

        def noted(steps: int, step_s: float) -> int:
            version = sync(steps, step_s)
            log.append(("step" if steps else "look", strategy._steps - 1, base[0], version))
            base[0] = version
            return version

        strategy._local.sync = noted  # type: ignore[method-assign]
        gate.wait()
        for step in range(25):
            time.sleep(random.uniform(0, 2e-3))
            at = model.weight.detach().double().numpy()
            model.step(optimizer, torch.from_numpy(gradient(worker, step, at)))
        strategy.settle()
        gate.wait()
        values, _ = weighted(strategy)
        gate.wait()
    return log, values


@pytest.mark.parametrize("mode", ["symmetric", "dissemination", "pull"])
def test_a_recorded_schedule_gives_the_same_values(mode: str, cluster: Cluster) -> None:
    gate = threading.Barrier(3, timeout=limit(60))
    logs, values = zip(*must_work(cluster.run(train_and_record, 3, mode, gate)), strict=True)
    assert sum(event[0] == mode for log in logs for event in log) > 10
    expected = replay_gossip(logs, np.ones(ELEMENTS), gradient, rate=0.1)
    for worker in range(3):
        np.testing.assert_allclose(values[worker], expected[worker], rtol=1e-4, atol=1e-5)

# SPDX-License-Identifier: Apache-2.0
"""Elastic averaging against its formulas, on the fake service; rounds have their tests on real ranks."""

import threading
from typing import Any

import braid.strategies as bs
import numpy as np
import pytest
import torch
from event_simulation import replay_elastic, replay_rounds, simulate
from fake_cluster import Cluster, must_work, one_by_one
from fake_service import FakeService
from slowness import limit
from torch import Tensor, nn
from torch.optim import SGD, AdamW

pytestmark = pytest.mark.unit

SIZE = 5


class Point(nn.Module):
    """A vector; its loss is |x|^2 / 2, so the gradient is x."""

    def __init__(self, *values: float, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(values, dtype=dtype))

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        self.weight.grad = self.weight.detach().clone()
        optimizer.step()

    @property
    def values(self) -> np.ndarray:
        return self.weight.detach().double().numpy().copy()


def centre_of(strategy: bs.ElasticAverage, model: nn.Module) -> np.ndarray:
    with strategy.centre():
        return torch.cat([p.detach().double().flatten() for p in model.parameters()]).numpy()


@pytest.mark.parametrize("overlap", [0, 1])
def test_one_worker_follows_the_closed_form(overlap: int, cluster: Cluster) -> None:
    eta, alpha, model = 0.3, 0.2, Point(1.0)
    optimizer = SGD(model.parameters(), lr=eta)
    map_ = np.array([[1 - eta - alpha, alpha], [alpha, 1 - alpha]])  # of (x, centre)
    state = np.array([1.0, 1.0])
    with bs.ElasticAverage(model, optimizer, sync_every=1, alpha=alpha, overlap=overlap) as strategy:
        for step in range(40):
            model.step(optimizer)
            state = map_ @ state
            if overlap:  # the exchange of the next step is at the servers already
                x, after = state, map_ @ state
                assert centre_of(strategy, model)[0] == pytest.approx(after[1], rel=1e-4), step
                assert model.values[0] == pytest.approx(x[0], rel=1e-4)
            else:
                assert [model.values[0], centre_of(strategy, model)[0]] == pytest.approx(state, rel=1e-4), step


@pytest.mark.parametrize("eta", [0.2, 1.0, 1.6])
def test_the_bound_of_round_robin(eta: float, cluster: Cluster) -> None:
    bound = (4 - 2 * eta) / (4 - eta)
    for alpha, is_stable in ((0.97 * bound, True), (1.03 * bound, False)):
        model = Point(1.0)
        optimizer = SGD(model.parameters(), lr=eta)
        with bs.ElasticAverage(model, optimizer, sync_every=1, alpha=alpha, schedule="round_robin") as strategy:
            for _ in range(400):
                model.step(optimizer)
            value = abs(centre_of(strategy, model)[0])
        assert value < 0.1 if is_stable else value > 10, (alpha, value)


def test_an_exchange_keeps_the_sum(cluster: Cluster) -> None:
    torch.manual_seed(0)
    model = Point(*torch.randn(50).tolist())
    optimizer = SGD(model.parameters(), lr=0.0)
    with bs.ElasticAverage(model, optimizer, sync_every=1, alpha=0.37) as strategy:
        with torch.no_grad():
            model.weight.add_(torch.randn(50))
        before = model.values + centre_of(strategy, model)
        apart = model.values - centre_of(strategy, model)
        model.step(optimizer)
        np.testing.assert_allclose(model.values + centre_of(strategy, model), before, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(model.values - centre_of(strategy, model), (1 - 2 * 0.37) * apart, rtol=1e-4)


@pytest.mark.parametrize("overlap", [2, 3])
def test_an_exchange_that_begins_early_is_of_older_values(overlap: int, cluster: Cluster) -> None:
    model = Point(1.0)
    optimizer = SGD(model.parameters(), lr=0.0)
    strategy = bs.ElasticAverage(model, optimizer, sync_every=3, alpha=0.25, overlap=overlap)
    if overlap == 2:
        model.step(optimizer)
        assert strategy.stats()["rounds"] == 0
    with torch.no_grad():
        model.weight.fill_(3.0)  # after the first exchange has begun with 1
    seen = []
    for _ in range(6):
        model.step(optimizer)
        seen.append((strategy.stats()["rounds"], model.weight.item()))
    first, second = [2, 5] if overlap == 3 else [1, 4]
    assert [rounds for rounds, _ in seen] == [(place >= first) + (place >= second) for place in range(6)]
    assert (seen[first][1], seen[second][1]) == (3.0, 3.0 - 0.25 * (3.0 - 1.0))
    strategy.close()  # a third exchange is under way: 2.5 there, and the centre at 1.5
    assert model.weight.item() == 2.5 - 0.25 * (2.5 - 1.5)


def test_gradient_and_difference_are_of_the_same_values(cluster: Cluster) -> None:
    model = Point(1.0)
    optimizer = SGD(model.parameters(), lr=0.5)
    with bs.ElasticAverage(model, optimizer, sync_every=1, alpha=0.25) as strategy:
        with torch.no_grad():
            model.weight.fill_(3.0)
        model.step(optimizer)
        assert centre_of(strategy, model)[0] == 1 + 0.25 * (3 - 1)
        assert model.values[0] == 3 - 0.5 * 3 - 0.25 * (3 - 1)


def net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


making = threading.Lock()  # torch has one random generator for all threads


def run_steps(model: nn.Module, optimizer: torch.optim.Optimizer, worker: int, steps: range) -> None:
    for step in steps:
        data = torch.randn(5, 4, generator=torch.Generator().manual_seed(100 * step + worker))
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()


def values(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().clone().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (SGD, {"lr": 0.1, "momentum": 0.9}),
        (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        (AdamW, {"lr": 0.1}),
    ],
)
def test_without_a_pull_workers_are_alone(kind: type, numbers: dict[str, Any], cluster: Cluster) -> None:
    def train(worker: int) -> Tensor:
        with making:
            model = net(worker)
        optimizer = kind(model.parameters(), **numbers)
        with bs.ElasticAverage(model, optimizer, sync_every=3, alpha=0.0):
            run_steps(model, optimizer, worker, range(10))
        return values(model)

    for worker, found in enumerate(must_work(cluster.run(train, 3))):
        alone = net(0)
        run_steps(alone, kind(alone.parameters(), **numbers), worker, range(10))
        assert torch.equal(found, values(alone))


def gradient(worker: int, step: int, at: np.ndarray) -> np.ndarray:
    return np.asarray(at - np.random.default_rng((worker, step)).normal(worker, 0.1, at.size))


@pytest.mark.parametrize("every", [1, 3])
def test_it_follows_the_simulation(every: int, cluster: Cluster) -> None:
    workers = 3
    order = [event.worker for event in simulate((0.25, 0.27, 0.6), 40)]
    turn, changed = [0], threading.Condition()
    begun = threading.Barrier(workers, timeout=limit(30))  # all begin at the same values

    def train(worker: int) -> tuple[np.ndarray, np.ndarray]:
        model = Point(*[1.0] * SIZE)
        optimizer = SGD(model.parameters(), lr=0.05)
        step = 0
        with bs.ElasticAverage(model, optimizer, sync_every=every, beta=0.9) as strategy:
            begun.wait()
            for place in (place for place, mine in enumerate(order) if mine == worker):
                with changed:
                    assert changed.wait_for(lambda place=place: turn[0] == place, 30)
                    for _ in range(every):
                        model.weight.grad = torch.from_numpy(gradient(worker, step, model.values)).float()
                        optimizer.step()
                        step += 1
                    turn[0] += 1
                    changed.notify_all()
            with changed:
                assert changed.wait_for(lambda: turn[0] == len(order), 30)
            assert strategy.stats()["rounds"] == order.count(worker)
            return centre_of(strategy, model), model.values

    expected = replay_elastic(order, workers, np.ones(SIZE), gradient, alpha=0.9 / workers, rate=0.05, every=every)
    for worker, (centre, own) in enumerate(must_work(cluster.run(train, workers))):
        np.testing.assert_allclose(centre, expected.centre, rtol=1e-5)
        np.testing.assert_allclose(own, expected.workers[worker], rtol=1e-5)


def test_the_simulation_of_rounds_has_the_mean_as_centre() -> None:
    for rounds in (1, 7):
        before = replay_rounds(rounds - 1, 3, np.ones(SIZE), gradient, alpha=1 / 3, rate=0.1, every=1)
        after = replay_rounds(rounds, 3, np.ones(SIZE), gradient, alpha=1 / 3, rate=0.1, every=1)
        np.testing.assert_allclose(after.centre, np.mean(before.workers, 0), rtol=1e-12)


def test_all_begin_with_the_values_of_worker_0_in_place(cluster: Cluster) -> None:
    def begin(worker: int) -> Tensor:
        with making:
            model = net(worker)
        memory = [parameter.data_ptr() for parameter in model.parameters()]
        with bs.ElasticAverage(model, SGD(model.parameters())):
            assert memory == [parameter.data_ptr() for parameter in model.parameters()]
            return values(model)

    for found in must_work(cluster.run(begin, 3)):
        assert torch.equal(found, values(net(0)))


def test_the_pull_is_divided_among_workers(cluster: Cluster) -> None:
    def strength(worker: int, options: dict[str, float]) -> float:
        model = Point(1.0)
        with bs.ElasticAverage(model, SGD(model.parameters()), **options) as strategy:
            return float(strategy.stats()["alpha"])

    for workers in (1, 4):
        for options, expected in (({}, 0.9 / workers), ({"beta": 0.6}, 0.6 / workers), ({"alpha": 0.5}, 0.5)):
            assert must_work(cluster.run(strength, workers, options)) == pytest.approx([expected] * workers)


def test_small_moves_are_not_lost_in_16_bits(cluster: Cluster) -> None:
    model = Point(1.0, dtype=torch.bfloat16)
    optimizer = SGD(model.parameters(), lr=0.0)
    with bs.ElasticAverage(model, optimizer, sync_every=1, alpha=0.001) as strategy:
        with torch.no_grad():
            model.weight.fill_(1.5)
        for _ in range(100):
            model.step(optimizer)
        assert model.values[0] == 1.5  # each pull of 0.0005 is less than a bfloat16 shows
        assert strategy.state_dict()["centre"].item() == pytest.approx(1 + 0.5 * (1 - 0.999**100), rel=1e-5)


class Norm(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.register_buffer("mean", torch.full((2,), value))
        self.register_buffer("count", torch.tensor(int(value)))


def test_the_centre_is_shown_and_taken_away(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one(monkeypatch)  # pushes of buffers that meet count less: see buffers.py
    together = threading.Barrier(3, timeout=limit(30))

    def train(worker: int, buffers: str) -> list[float]:
        model = Norm(float(10 * worker))
        optimizer = SGD(model.parameters(), lr=0.1)
        with bs.ElasticAverage(model, optimizer, sync_every=2, buffers=buffers) as strategy:
            for _ in range(80):
                together.wait()
                with torch.no_grad():  # as BatchNorm does, with a batch whose mean is the worker's number
                    model.mean.lerp_(torch.full((2,), float(worker)), 0.1)
                model.weight.grad = model.weight.detach() - worker
                optimizer.step()
            own = [model.weight.item(), model.mean[0].item(), model.count.item()]
            with strategy.centre():
                shown = [model.weight.item(), model.mean[0].item(), model.count.item()]
                with pytest.raises(RuntimeError, match="take no step inside centre"):
                    optimizer.step()
                with pytest.raises(RuntimeError, match="leave the other centre"), strategy.centre():
                    pass
            with pytest.raises(KeyError), strategy.centre():
                raise KeyError
            assert own == [model.weight.item(), model.mean[0].item(), model.count.item()]
            return [*own, *shown]

    found = must_work(cluster.run(train, 3, "average"))
    for x, mean, count, centre, centre_mean, centre_count in found:
        assert x != centre
        assert (mean, centre_mean) == (pytest.approx(1.0, abs=0.15), pytest.approx(1.0, abs=0.15))
        assert (count, centre_count) == (0, 0)
    assert found[0][0] < found[1][0] < found[2][0]
    for worker, (_, mean, count, _, centre_mean, _) in enumerate(must_work(cluster.run(train, 3, "local"))):
        assert mean == centre_mean == pytest.approx(worker, abs=0.1)
        assert count == 10 * worker


def test_a_late_worker_begins_at_the_centre(cluster: Cluster) -> None:
    def begin(worker: int) -> float:
        model = Point(float(worker))
        optimizer = SGD(model.parameters(), lr=1.0)
        strategy = bs.ElasticAverage(model, optimizer, sync_every=1, servers=[1])
        with torch.no_grad():
            model.weight.fill_(8.0 if worker == 0 else 0.0)
        model.step(optimizer)
        return strategy.alpha

    must_work(cluster.run(begin, 2))
    model = Point(5.0)
    cluster.join_late(cluster.name, cluster.store, 1)
    with bs.ElasticAverage(model, SGD(model.parameters(), lr=1.0), sync_every=1, servers=[1]) as strategy:
        assert model.values[0] == pytest.approx(centre_of(strategy, model)[0])
        assert 0 < model.values[0] < 8
        assert strategy.alpha == 0.45
        made = FakeService.made[f"{cluster.name}/parameters"]
        assert (made["rule"], made["mode"], made["late"]) == ("elastic", "async", True)


def test_resume(cluster: Cluster) -> None:
    once = net(0)
    optimizer = SGD(once.parameters(), lr=0.1, momentum=0.9)
    with bs.ElasticAverage(once, optimizer, sync_every=3, alpha=0.3) as strategy:
        run_steps(once, optimizer, 0, range(10))
        expected = values(once), centre_of(strategy, once)
    first = net(0)
    optimizer = SGD(first.parameters(), lr=0.1, momentum=0.9)
    with bs.ElasticAverage(first, optimizer, sync_every=3, alpha=0.3) as strategy:
        run_steps(first, optimizer, 0, range(5))
        saved = [strategy.state_dict(), first.state_dict(), optimizer.state_dict()]
        own = values(first)

    all_have_looked = threading.Barrier(2)

    def go_on(worker: int) -> Tensor:
        with making:
            model = net(7 + worker)
        optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
        with bs.ElasticAverage(model, optimizer, sync_every=3, alpha=0.3) as strategy:
            if worker == 0:
                model.load_state_dict(saved[1])
                optimizer.load_state_dict(saved[2])
            strategy.load_state_dict(saved[0] if worker == 0 else None)
            assert strategy.stats()["steps"] == 5
            np.testing.assert_array_equal(centre_of(strategy, model), saved[0]["centre"].double())
            all_have_looked.wait(limit(60))
            if worker == 0:
                assert torch.equal(values(model), own)
                run_steps(model, optimizer, 0, range(5, 10))
                assert torch.equal(values(model), expected[0])
                np.testing.assert_array_equal(centre_of(strategy, model), expected[1])
            return values(model)

    _, newcomer = must_work(cluster.run(go_on, 2))
    assert torch.equal(newcomer, saved[0]["centre"])

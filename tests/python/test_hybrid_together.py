# SPDX-License-Identifier: Apache-2.0
"""Hybrid with workers as threads: what it computes, who takes part in a round, what it refuses."""

import math
import threading
from collections.abc import Callable
from typing import Any

import braid.strategies as bs
import pytest
import torch
from braid.strategies.hybrid.places import Place
from fake_cluster import Cluster, must_work
from fake_members import Rooms
from fake_service import FakeService
from slowness import limit
from torch import nn
from torch.optim import SGD, AdamW, RMSprop

pytestmark = pytest.mark.unit

STEPS = 6
making = threading.Lock()  # torch has one random generator for all threads


@pytest.fixture
def rooms(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Rooms:
    return Rooms(cluster, monkeypatch)


def net(seed: int) -> nn.Module:
    with making:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def batch(worker: int, step: int) -> torch.Tensor:
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(100 * step + worker))


def values(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def must_equal(found: list[list[torch.Tensor]], expected: list[torch.Tensor], tolerance: float = 1e-6) -> None:
    for worker in found:
        for mine, other in zip(worker, expected, strict=True):
            torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)


def trained(worker: int, kind: type, numbers: dict[str, Any], options: dict[str, Any], steps: int = STEPS) -> Any:
    model = net(worker)
    make = bs.Hybrid if "groups" in options else bs.ParameterServer
    with make(model, kind, **numbers, **options) as optimizer:
        for step in range(steps):
            optimizer.zero_grad()
            model(batch(worker, step)).square().mean().backward()
            optimizer.step()
        with optimizer.centre():
            return values(model)


def single(kind: type, numbers: dict[str, Any], workers: int, steps: int = STEPS) -> list[torch.Tensor]:
    """Return what one process computes on the union of all batches."""
    model = net(0)
    optimizer = kind(model.parameters(), **numbers)
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.cat([batch(worker, step) for worker in range(workers)])).square().mean().backward()
        optimizer.step()
    return values(model)


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("kind", "numbers"), [(SGD, {"lr": 0.1, "momentum": 0.9}), (AdamW, {"lr": 0.01}), (RMSprop, {"lr": 0.01})]
)
def test_one_group_equals_one_process(
    workers: int, kind: type, numbers: dict[str, Any], cluster: Cluster, rooms: Rooms
) -> None:
    options = {"groups": [list(range(workers))], "rate_rule": "none"}
    must_equal(
        must_work(cluster.run(trained, workers, kind, numbers, options)), single(kind, numbers, workers), 1e-5
    )


@pytest.mark.parametrize("delay", [0, 1])
def test_parameter_groups_accumulation_and_closures(delay: int, cluster: Cluster, rooms: Rooms) -> None:
    def parameters(model: nn.Module) -> list[dict[str, Any]]:
        first, *rest = model.parameters()
        return [{"params": rest}, {"params": [first], "lr": 0.3, "weight_decay": 0.1}]

    def loss(model: nn.Module, workers: list[int], step: int) -> torch.Tensor:
        return sum(model(batch(worker, step)).square().mean() for worker in workers) / len(workers)

    def train(worker: int) -> list[torch.Tensor]:
        model = net(worker)
        options = {"params": parameters(model), "groups": [[0, 1]], "base_workers": 2, "delay": delay}
        with bs.Hybrid(model, SGD, lr=0.1, momentum=0.9, **options) as optimizer:
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)

            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                loss(model, [worker], 0).backward()
                loss(model, [worker], 1).backward()
                return torch.ones(())

            for _ in range(3):
                assert optimizer.step(closure) == 1
                scheduler.step()
                if delay:  # wait, so that the next gradients are not stale
                    with optimizer.centre():
                        pass
            return values(model)

    model = net(0)
    plain = SGD(parameters(model), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(plain, 0.8)
    for _ in range(3):
        plain.zero_grad()
        (loss(model, [0, 1], 0) + loss(model, [0, 1], 1)).backward()
        plain.step()
        scheduler.step()
    must_equal(must_work(cluster.run(train, 2)), values(model), 1e-5)


@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_groups_of_one_equal_a_parameter_server(kind: type, cluster: Cluster, rooms: Rooms) -> None:
    numbers = {"lr": 0.02}
    plain = must_work(cluster.run(trained, 3, kind, numbers, {"mode": "sync"}))
    options = {"mode": "sync", "groups": [[2], [0], [1]]}
    for mine, other in zip(must_work(cluster.run(trained, 3, kind, numbers, options)), plain, strict=True):
        must_equal([mine], other)


def pushed(
    worker: int, gradients: Callable[[int, int], float], steps: list[int], options: dict[str, Any]
) -> float:
    """Train one number whose gradients are given, and return it."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    with bs.Hybrid(model, SGD, **options) as optimizer:
        for step in range(steps[worker]):
            model.weight.grad = torch.full((1, 1), gradients(worker, step))
            optimizer.step()
        optimizer.close()
    return model.weight.item()


@pytest.mark.parametrize(("rule", "power"), [("linear", 1.0), ("sqrt", 0.5), ("none", 0.0)])
@pytest.mark.parametrize("warmup", [0, 4])
def test_groups_in_step_follow_the_formula(
    rule: str, power: float, warmup: int, cluster: Cluster, rooms: Rooms
) -> None:
    groups, rate, momentum, base = [[0, 1, 2], [3], [4]], 0.1, 0.5, 2

    def gradient(worker: int, step: int) -> float:
        return math.sin(1.0 + worker + 7 * step)

    def factor(size: int, step: int) -> float:
        full = (size / base) ** power
        return full if step >= warmup else 1 + (full - 1) * step / warmup

    expected = velocity = 0.0
    for step in range(STEPS):
        common = sum(factor(len(group), step) for group in groups) / len(groups)
        mean = sum(
            factor(len(group), step) / common * sum(gradient(worker, step) for worker in group) / len(group)
            for group in groups
        ) / len(groups)
        velocity = momentum * velocity + mean
        expected -= rate * common * velocity
    options = {"lr": rate, "momentum": momentum, "mode": "sync", "groups": groups}
    options |= {"rate_rule": rule, "base_workers": base, "warmup_steps": warmup}
    found = must_work(cluster.run(pushed, 5, gradient, [STEPS] * 5, options))
    assert found == pytest.approx([expected] * 5, rel=1e-5)


def test_the_rate_that_an_asynchronous_group_pushes(cluster: Cluster, rooms: Rooms) -> None:
    options = {"lr": 0.1, "momentum": 0.9, "groups": [[0, 1]], "warmup_steps": 2, "implicit_momentum": True}
    must_work(cluster.run(pushed, 2, lambda worker, step: 1.0, [4, 4], options))
    assert [numbers[0][1]["rate"] for numbers in FakeService.pushed] == pytest.approx([0.1, 0.15, 0.2, 0.2])
    assert {numbers[0][1]["momentum"] for numbers in FakeService.pushed} == {0.9}  # one group implies none
    FakeService.pushed.clear()
    options |= {"groups": [[0], [1]], "rate_rule": "none"}
    must_work(cluster.run(pushed, 2, lambda worker, step: 1.0, [1, 1], options))
    assert {round(numbers[0][1]["momentum"], 6) for numbers in FakeService.pushed} == {0.4}  # 0.9 - (1 - 1/2)


@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("steps", [[2, 5, 3], [5, 2, 0], [0, 0, 0]])
def test_members_that_take_other_numbers_of_steps(
    steps: list[int], delay: int, cluster: Cluster, rooms: Rooms
) -> None:
    options = {"lr": 0.1, "groups": [[0, 1, 2]], "rate_rule": "linear", "delay": delay}
    found = must_work(cluster.run(pushed, 3, lambda worker, step: 1.0 + worker, steps, options))
    expected = 0.0
    for step in range(max(steps)):  # the mean of those that take part, at the rate of so many workers
        expected -= 0.1 * sum(1.0 + worker for worker in range(3) if step < steps[worker])
    assert found == pytest.approx([expected] * 3)


@pytest.mark.parametrize("delay", [0, 1])
def test_settle_lets_members_meet(delay: int, cluster: Cluster, rooms: Rooms) -> None:
    barrier = threading.Barrier(3)

    def train(worker: int) -> float:
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        with bs.Hybrid(model, SGD, lr=0.1, groups=[[0, 1, 2]], delay=delay) as optimizer:
            for _ in range(2):
                for _ in range(1 + worker):
                    model.weight.grad = torch.ones(1, 1)
                    optimizer.step()
                optimizer.settle()
                barrier.wait(limit(20))  # members that still stepped would wait for those that are here
            assert optimizer.stats()["steps"] == 2 * (1 + worker)
            return model.weight.item()

    assert must_work(cluster.run(train, 3)) == pytest.approx([-0.1 * 2 * (3 + 2 + 1)] * 3)


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_group_skips_together(mode: str, cluster: Cluster, rooms: Rooms) -> None:
    def train(worker: int) -> tuple[float, int, int]:
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        with bs.Hybrid(model, SGD, lr=1.0, mode=mode, groups=[[0, 1], [2]], rate_rule="none") as optimizer:
            scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
            for step in range(5):
                value = float("inf") if worker == 1 and step in (1, 2) else 1.0
                model.weight.grad = torch.full((1, 1), value) * scaler.scale(torch.ones(()))
                scaler.step(optimizer)
                scaler.update()
            stats = optimizer.stats()
            optimizer.close()
            return model.weight.item(), stats["skipped"], stats["steps"]

    results = must_work(cluster.run(train, 3))
    assert [result[1] for result in results] == [2, 2, 0]
    if mode == "sync":  # their part of these rounds is zero
        assert [result[2] for result in results] == [5, 5, 5]
        assert results[2][0] == pytest.approx(-3 - 2 / 2)
    else:
        assert [result[2] for result in results] == [3, 3, 5]
        assert FakeService.hubs[f"{cluster.name}/groups.0/parameters"].values[0] == -8.0


def test_measured_groups(cluster: Cluster, rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    times = [0.25, 0.5, 0.26]

    def place(group: object, elements: int, step_s: float) -> Place:
        return Place("here", None, None, times[cluster.meeting.member])

    monkeypatch.setattr("braid.strategies.hybrid.hybrid.place", place)

    def train(worker: int) -> tuple[list[Any], list[torch.Tensor]]:
        model = net(worker)
        options = {"mode": "sync", "rate_rule": "none", "measure_steps": 3}
        with bs.Hybrid(model, SGD, lr=0.1, momentum=0.9, **options) as optimizer:
            groups = [optimizer.groups]
            for step in range(STEPS):
                optimizer.zero_grad()
                model(batch(worker, step)).square().mean().backward()
                optimizer.step()
                groups.append(optimizer.stats()["groups"])
            with optimizer.centre():
                return groups, values(model)

    results = must_work(cluster.run(train, 3))
    whole, formed = [[0, 1, 2]], [[0, 2], [1]]
    model = net(0)
    plain = SGD(model.parameters(), lr=0.1, momentum=0.9)  # the momentum of before is kept
    for step in range(STEPS):
        plain.zero_grad()
        weights = [1 / 3] * 3 if step < 3 else [0.25, 0.5, 0.25]
        sum(w * model(batch(i, step)).square().mean() for i, w in enumerate(weights)).backward()
        plain.step()
    for groups, _ in results:
        assert groups == [whole] * 3 + [formed] * 4
    must_equal([found for _, found in results], values(model), 1e-5)
    assert rooms.lines == [
        "hybrid: groups 0+1+2, for 3 steps, to measure step times",
        "hybrid: groups 0+2/1, by step times of 250, 500, 260 ms: alike within 15 %, on one host",
    ]


def test_a_worker_that_ends_before_groups_are_formed(
    cluster: Cluster, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [math.inf, 1.0, 1.0]
    monkeypatch.setattr(
        "braid.strategies.hybrid.hybrid.place", lambda *_: Place("a", step_s=times[cluster.meeting.member])
    )
    options = {"lr": 1.0, "measure_steps": 4, "mode": "sync"}
    found = must_work(cluster.run(pushed, 3, lambda worker, step: 1.0, [1, 6, 6], options))
    assert found[1:] == pytest.approx([-(3 + 3 * 2 + 2 * 2)] * 2)  # the rate follows those who take part
    assert rooms.lines[1].startswith("hybrid: groups 0/1+2, by step times of inf, 1e+03, 1e+03 ms")


def hosts_of(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, hosts: str) -> None:
    monkeypatch.setattr("braid.strategies.hybrid.places.host_identity", lambda: hosts[cluster.meeting.member])


def test_groups_by_host(cluster: Cluster, rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts_of(monkeypatch, cluster, "abab")

    def begin(worker: int) -> list[list[int]]:
        with bs.Hybrid(nn.Linear(1, 1), SGD, lr=0.1, groups="host", servers=[1]) as optimizer:
            return optimizer.groups

    assert must_work(cluster.run(begin, 4)) == [[[0, 2], [1, 3]]] * 4
    assert FakeService.made[f"{cluster.name}/groups.0/parameters"]["servers"] == [1]
    assert rooms.lines == ["hybrid: groups 0+2/1+3, one for each host"]
    hosts_of(monkeypatch, cluster, "aabb")
    for result in cluster.run(begin, 4):
        with pytest.raises(ValueError, match=r"rank 1 speaks for no group.*the speakers are 0, 2$"):
            raise result


def test_resume_with_other_groups(cluster: Cluster, rooms: Rooms) -> None:
    def begin(worker: int) -> Any:
        model = net(worker)
        with bs.Hybrid(model, AdamW, lr=0.01, groups=[[0, 1]], rate_rule="none", mode="sync") as optimizer:
            for step in range(3):
                optimizer.zero_grad()
                model(batch(worker % 2, step)).square().mean().backward()
                optimizer.step()
            if worker == 0:
                return optimizer.service_state()
            with pytest.raises(RuntimeError, match="does not speak for its group: rank 0 does, so call it there"):
                optimizer.service_state()

    saved = must_work(cluster.run(begin, 2))[0]

    def go_on(worker: int) -> list[torch.Tensor]:
        model = net(worker)
        options = {"groups": [[0, 2], [1, 3]], "rate_rule": "none", "mode": "sync"}
        with bs.Hybrid(model, AdamW, lr=0.01, **options) as optimizer:
            optimizer.load_service_state(saved if worker == 0 else None)
            for step in range(3, STEPS):
                optimizer.zero_grad()
                model(batch(worker % 2, step)).square().mean().backward()
                optimizer.step()
            with optimizer.centre():
                return values(model)

    must_equal(must_work(cluster.run(go_on, 4)), single(AdamW, {"lr": 0.01}, 2), 1e-5)

# SPDX-License-Identifier: Apache-2.0
"""What is saved while an exchange is under way: training goes on as if nobody had saved, and a state goes on."""

from typing import Any

import braid.strategies as bs
import pytest
import torch
import torch.distributed as dist
from fake_cluster import Cluster, must_work
from fake_members import Rooms
from fake_service import FakeService
from torch import nn
from torch.optim import SGD

pytestmark = pytest.mark.unit


class Point(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((1,), value))
        self.register_buffer("mean", torch.full((1,), value))


@pytest.mark.parametrize("saves", [False, True])
def test_a_speaker_that_saves_trains_as_its_group_does(
    saves: bool, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    Rooms(cluster, monkeypatch)
    options = {"groups": [[0, 1]], "rate_rule": "none"}

    def train(worker: int) -> tuple[list[float], float]:
        model, seen = Point(1.0), []
        with bs.Hybrid(model, SGD, lr=1.0, delay=1, mode="sync", **options) as optimizer:
            for _ in range(4):
                model.weight.grad = model.weight.detach().clone()  # of w * w / 2
                with torch.no_grad():
                    model.mean.mul_(0.5)
                optimizer.step()
                seen.append(model.weight.item())
                if saves and worker == 0:
                    optimizer.service_state()
            with optimizer.centre():
                return [*seen, model.weight.item()], model.mean.item()

    for seen, mean in must_work(cluster.run(train, 2)):
        # Each step brings what the push of the step before has made: 1, 1 - 1, 0 - 1, -1 - 0, -1 + 1.
        assert seen == [1.0, 0.0, -1.0, -1.0, 0.0]
        assert mean == pytest.approx(1 / 16)


def test_the_warm_up_of_a_rate_goes_on_after_a_resume(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    Rooms(cluster, monkeypatch)
    options = {"groups": [[0, 1, 2]], "warmup_steps": 4}

    def train(worker: int, steps: int, state: list[Any] | None) -> Any:
        model = Point(1.0)
        with bs.Hybrid(model, SGD, lr=0.1, **options) as optimizer:
            if state:
                optimizer.load_state_dict(state[worker])
            for _ in range(steps):
                model.weight.grad = torch.ones(1)
                optimizer.step()
            return optimizer.state_dict()

    def rates() -> list[float]:
        return [row["rate"] for [(_, row), *_] in FakeService.pushed if "momentum" in row]

    states = must_work(cluster.run(train, 3, 3, None))
    assert [state["braid"]["updates"] for state in states] == [3, 3, 3]
    FakeService.forget()
    must_work(cluster.run(train, 3, 2, states))
    assert rates() == pytest.approx([0.1 * 2.5, 0.1 * 3.0])


def diloco(model: nn.Module, optimizer: SGD, **options: Any) -> bs.DiLoCo:
    return bs.DiLoCo(model, optimizer, asynchronous=True, **options)


def plus_one(model: Point, optimizer: SGD, steps: int) -> None:
    for _ in range(steps):
        model.weight.grad = torch.full((1,), -1.0)
        optimizer.step()


def test_an_asynchronous_worker_ends_at_the_centre(cluster: Cluster) -> None:
    model = Point(0.0)
    optimizer = SGD(model.parameters(), lr=1.0)
    options = {"sync_every": 2, "fragment_update_alpha": 0.5, "outer_lr": 0.5, "outer_momentum": 0.0}
    with diloco(model, optimizer, **options) as strategy:
        plus_one(model, optimizer, 2)
        assert model.weight.item() == 1.5  # half of the way from 2 to the centre
        strategy.settle()
        assert model.weight.item() == 1.0


def test_settling_pushes_nothing_where_nothing_has_changed(cluster: Cluster) -> None:
    model = Point(0.0)
    optimizer = SGD(model.parameters(), lr=1.0)
    options = {"sync_every": 2, "fragment_sync_delay": 1, "outer_lr": 0.5, "outer_momentum": 0.5}
    with diloco(model, optimizer, **options) as strategy:
        plus_one(model, optimizer, 3)
        before, pushes = model.weight.item(), len(FakeService.pushed)
        strategy.settle()
        assert model.weight.item() == before
        assert len(FakeService.pushed) == pushes


@pytest.mark.parametrize("options", [{"asynchronous": True}, {}])
def test_loading_while_something_is_under_way_keeps_the_model(options: dict[str, Any], cluster: Cluster) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = Point(0.0)
        optimizer = SGD(model.parameters(), lr=1.0)
        options = {**options, "sync_every": 4, "fragment_sync_delay": 2, "outer_lr": 1.0, "outer_momentum": 0.0}
        with bs.DiLoCo(model, optimizer, **options) as strategy:
            plus_one(model, optimizer, 3)
            saved = strategy.state_dict()
            plus_one(model, optimizer, 2)
            with torch.no_grad():
                model.weight.fill_(3.0)
            strategy.load_state_dict(saved)
            assert model.weight.item() == 3.0
            with strategy.centre():
                assert model.weight.item() == 0.0
    finally:
        dist.destroy_process_group()


def test_loading_keeps_the_buffers_of_an_elastic_average(cluster: Cluster) -> None:
    def train(worker: int) -> float:
        model = Point(0.0)
        optimizer = SGD(model.parameters(), lr=0.0)
        with bs.ElasticAverage(model, optimizer, sync_every=2, overlap=1, schedule="first_come") as strategy:
            saved = strategy.state_dict()
            with torch.no_grad():
                model.mean.fill_(8.0)
            plus_one(model, optimizer, 1)  # what is begun here is under way until the next step
            with torch.no_grad():
                model.mean.fill_(10.0)
            strategy.load_state_dict(saved)
            return model.mean.item()

    assert must_work(cluster.run(train, 2)) == [10.0, 10.0]

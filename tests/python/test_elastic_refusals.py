# SPDX-License-Identifier: Apache-2.0
"""What elastic averaging refuses, each in one sentence; and what its hooks make of unusual optimizers."""

import copy
from collections.abc import Callable
from typing import Any

import braid.strategies as bs
import pytest
import torch
from braid.strategies.elastic.centre_rank import best_of
from braid.strategies.text import read
from fake_cluster import Cluster
from fake_service import FakeService
from torch import nn
from torch.optim import LBFGS, SGD, Adam

pytestmark = pytest.mark.unit


def linear(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2, **options)


def elastic(model: nn.Module | None = None, kind: type = SGD, **options: Any) -> bs.ElasticAverage:
    model = linear() if model is None else model
    return bs.ElasticAverage(model, kind(model.parameters()), **options)


def of_two_optimizers() -> bs.ElasticAverage:
    model = nn.Sequential(linear(), nn.Linear(2, 2))
    return bs.ElasticAverage(model, SGD(model[0].parameters()))


def of_another_model() -> bs.ElasticAverage:
    return bs.ElasticAverage(linear(), SGD(linear().parameters()))


class FullyShardedDataParallel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = linear()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda: elastic(schedule="async"),
            r"schedule 'async': there is none of that name; there are round_robin",
        ),
        (lambda: elastic(sync_every=0), "sync_every=0: a whole number of steps, at least 1"),
        (lambda: elastic(sync_every=2.5), "sync_every=2.5: a whole number"),
        (lambda: elastic(alpha=0.1, beta=0.9), "alpha= and beta= say the same"),
        (lambda: elastic(alpha=1.5), "alpha=1.5: at most 1"),
        (lambda: elastic(alpha=float("nan")), "alpha=nan: a finite number, at least 0"),
        (lambda: elastic(beta=-0.1), "beta=-0.1: a finite number, at least 0"),
        (lambda: elastic(beta="much"), "beta=much: a finite number"),
        (lambda: elastic(beta=7.0), "beta=7.0: at most the number of workers, which is "),
        (lambda: elastic(buffers="mean"), "buffers 'mean': there are average, broadcast, local"),
        (lambda: elastic(overlap=11), r"overlap=11: a whole number of steps from 0 to sync_every \(10\)"),
        (lambda: elastic(overlap=0, schedule="sync3"), "overlap=0: a whole number of steps from 1"),
        (lambda: elastic(overlap=1, schedule="sync1"), "the schedule that overlaps is 'sync3'"),
        (lambda: elastic(servers=[0], schedule="sync2"), "servers= is for schedules with servers: round_robin, "),
        (lambda: elastic(servers=[9]), r"servers=\[9\]: give one or more different ranks"),
        (lambda: elastic(root=0), "root= is for the schedules sync2 and sync3, not for 'first_come'"),
        (lambda: elastic(root=5, schedule="sync2"), "root=5: a rank from 0 to "),
        (lambda: elastic(kind=LBFGS), "LBFGS evaluates its closure several times"),
        (lambda: elastic(linear(dtype=torch.float64)), "^weight is float64: "),
        (lambda: elastic(linear(device="meta")), "^weight is on meta: "),
        (lambda: elastic(FullyShardedDataParallel()), "the model is in FullyShardedDataParallel"),
        (
            lambda: bs.ElasticAverage(linear().requires_grad_(False), SGD(linear().parameters())),
            "not a parameter of",
        ),
        (of_two_optimizers, "1.weight is trained, but is not in the optimizer: a strategy needs one optimizer"),
        (of_another_model, "parameter 0 of group 0 is not a parameter of the model"),
    ],
)
def test_what_does_not_fit(make: Callable[[], bs.ElasticAverage], why: str, cluster: Cluster) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        make()
    assert "\n" not in str(caught.value)
    # All other workers hear of it at once.
    results = cluster.run(lambda worker: make() if worker == 1 else elastic(), 3)
    assert all(isinstance(result, ValueError) for result in results), results
    assert str(results[0]) == f"worker 1 cannot begin: {results[1]}" == str(results[2])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: bs.ElasticAverage(linear(), SGD), "attaches to an optimizer that is made"),
        (lambda: bs.ElasticAverage(SGD(linear().parameters()), linear()), "takes a model and then an optimizer"),
    ],
)
def test_what_has_the_wrong_type(make: Callable[[], object], why: str, cluster: Cluster) -> None:
    with pytest.raises(TypeError, match=why):
        make()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"sync_every": 3}, "has 'sync_every=3', but worker 0 has 'sync_every=10'"),
        ({"alpha": 0.1}, "has 'alpha=0.1', but worker 0 has 'alpha=None'"),
        ({"schedule": "round_robin"}, "has 'schedule=round_robin', but worker 0 has 'schedule=first_come'"),
        ({"servers": [0]}, r"has 'servers \[0\]', but"),
    ],
)
def test_workers_that_differ(options: dict[str, Any], why: str, cluster: Cluster) -> None:
    results = cluster.run(lambda worker: elastic(**options) if worker == 2 else elastic(), 3)
    assert {type(result) for result in results} == {ValueError}
    with pytest.raises(ValueError, match=why):
        raise results[0]
    results = cluster.run(lambda worker: elastic() if worker else bs.ParameterServer(linear(), SGD), 2)
    with pytest.raises(ValueError, match="has 'strategy elastic_average', but worker 0 has 'strategy parameter_s"):
        raise results[0]


def test_schedules_choose_the_consistency_of_servers(cluster: Cluster) -> None:
    for schedule, consistency in (("hogwild", "relaxed"), ("first_come", "atomic")):
        elastic(schedule=schedule).close()
        made = list(FakeService.made.values())[-1]
        assert (made["mode"], made["consistency"]) == ("async", consistency)


def test_a_late_worker_cannot_join_rounds(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from braid.strategies.elastic import elastic_average

    monkeypatch.setattr(elastic_average, "join_meeting", elastic_average.meet)
    with pytest.raises(ValueError, match="in 'sync1' all begin together"):
        elastic(schedule="sync1", join="host:1")


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(1, 3)).square().sum().backward()
    optimizer.step()


def test_after_the_beginning(cluster: Cluster) -> None:
    model = linear()
    model.bias.requires_grad_(False)
    optimizer = Adam(model.parameters(), lr=0.1)
    strategy = bs.ElasticAverage(model, optimizer, sync_every=1)
    copy.deepcopy(optimizer)
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.deepcopy(strategy)
    with pytest.raises(ValueError, match="weight belongs to another strategy already"):
        elastic(model)
    with pytest.raises(ValueError, match="weight belongs to another strategy already"):
        bs.ParameterServer(model, SGD)
    with pytest.raises(RuntimeError, match="cannot follow a closure: compute the gradients first"):
        optimizer.step(lambda: 1.0)
    optimizer.step(None)
    model.bias.requires_grad_(True)
    with pytest.raises(RuntimeError, match="bias was frozen when the strategy began"):
        step(model, optimizer)
    model.bias.requires_grad_(False)
    step(model, optimizer)
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    with pytest.raises(RuntimeError, match="fixed when it begins: add groups before"):
        step(model, optimizer)
    assert strategy.stats()["steps"] == strategy.stats()["rounds"] == 2
    strategy.close()
    strategy.close()
    for use in (strategy.stats, strategy.state_dict, strategy.settle, strategy.centre().__enter__):
        with pytest.raises(RuntimeError, match="the strategy is closed"):
            use()
    optimizer.step(lambda: 1.0)  # it is the user's alone again
    elastic(model).close()


class Careful(SGD):  # type: ignore[misc]
    """An optimizer that calls step() of its base, for which torch runs the hooks twice."""

    fails = False

    def step(self, closure: Any = None) -> Any:
        if self.fails:
            raise KeyError("the user's own")
        return super().step(closure)


def test_a_step_counts_once(cluster: Cluster) -> None:
    SGD(linear().parameters())  # from here on its step runs hooks
    model = linear()
    optimizer = Careful(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    with bs.ElasticAverage(model, optimizer, sync_every=2) as strategy:
        for _ in range(4):
            step(model, optimizer)
            scheduler.step()
        assert (strategy.stats()["steps"], strategy.stats()["rounds"]) == (4, 2)
        assert optimizer.param_groups[0]["lr"] == 0.1 / 16
        step(model, optimizer)
        optimizer.fails = True
        with pytest.raises(KeyError):
            step(model, optimizer)
        optimizer.fails = False
        step(model, optimizer)  # goes on with the exchange that the failed step has begun
        assert (strategy.stats()["steps"], strategy.stats()["rounds"]) == (6, 3)


@pytest.mark.parametrize(("kind", "numbers", "steps"), [(SGD, {}, 4), (Adam, {"fused": True}, 5)])
def test_a_scaler_that_skips(kind: type, numbers: dict[str, Any], steps: int, cluster: Cluster) -> None:
    model = linear()
    optimizer = kind(model.parameters(), lr=0.1, **numbers)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with bs.ElasticAverage(model, optimizer, sync_every=1) as strategy:
        for number in range(5):
            loss = model(torch.full((1, 3), float("inf") if number == 2 else 1.0)).square().sum()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        # A fused optimizer skips inside its step, so the exchange takes place.
        assert strategy.stats()["steps"] == strategy.stats()["rounds"] == steps
        assert model.weight.isfinite().all()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda saved: None, r"this is no state of an ElasticAverage: load what state_dict\(\) returned"),
        (lambda saved: {**saved, "strategy": "diloco"}, "this is a state of the strategy 'diloco'"),
        (lambda saved: {**saved, "version": 7}, "this state has version 7, but the strategy has 1"),
        (lambda saved: {**saved, "parameters": ["w (1,) float32, group 0"]}, "of another model: it has 'w"),
        (lambda saved: {**saved, "buffers": ["mean (1,) float32, group 0"]}, "another number of buffers"),
    ],
)
def test_a_state_of_something_else(spoil: Callable[[Any], Any], why: str, cluster: Cluster) -> None:
    def load(worker: int) -> None:
        with elastic() as strategy:
            strategy.load_state_dict(spoil(strategy.state_dict()))

    for result in cluster.run(load, 2):
        with pytest.raises(ValueError, match=why):
            raise result


def test_text(cluster: Cluster) -> None:
    text = "elastic:sync_every=4,beta=0.5,schedule=round_robin,overlap=1,servers=0,timeout=5"
    kind, options = read(text)
    assert kind is bs.ElasticAverage
    numbers = {"sync_every": 4, "beta": 0.5, "overlap": 1, "timeout": 5.0}
    assert options == {**numbers, "schedule": "round_robin", "servers": [0]}
    with pytest.raises(ValueError, match=r"elastic has no option 'sync_evry'; did you mean sync_every\?"):
        read("elastic:sync_evry=3")
    model = linear()
    optimizer = SGD(model.parameters(), lr=0.1)
    with bs.from_text("elastic:sync_every=2,alpha=0.25", model, optimizer) as strategy:
        step(model, optimizer)
        step(model, optimizer)
        assert (strategy.stats()["rounds"], strategy.stats()["alpha"]) == (1, 0.25)


def test_the_place_of_the_centre() -> None:
    assert best_of([1.0, 0.5, 0.4]) == 2
    assert best_of([1.0, 0.95, 0.9]) == 0
    assert best_of([1.0]) == 0

# SPDX-License-Identifier: Apache-2.0
"""Several workers of a parameter server, as threads: modes, buffers, checkpoints, late workers."""

import io
import threading
import time
from collections.abc import Callable
from typing import Any

import braid.strategies as bs
import pytest
import torch
from fake_cluster import Cluster, must_work
from fake_service import FakeService
from torch import nn
from torch.optim import SGD, AdamW, RMSprop

pytestmark = pytest.mark.unit

WORKERS = 3
STEPS = 6


def net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def batch(worker: int, step: int) -> torch.Tensor:
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(100 * step + worker))


making = threading.Lock()  # torch has one random generator for all threads


def trained(worker: int, kind: type, numbers: dict[str, Any], options: dict[str, Any]) -> list[torch.Tensor]:
    with making:
        model = net(worker)
    with bs.ParameterServer(model, kind, **numbers, **options) as optimizer:
        for step in range(STEPS):
            optimizer.zero_grad()
            model(batch(worker, step)).square().mean().backward()
            optimizer.step()
        with optimizer.centre():
            return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize(
    ("kind", "numbers"), [(SGD, {"lr": 0.1, "momentum": 0.9}), (AdamW, {"lr": 0.01}), (RMSprop, {"lr": 0.01})]
)
def test_sync_takes_the_mean(kind: type, numbers: dict[str, Any], cluster: Cluster) -> None:
    together = must_work(cluster.run(trained, WORKERS, kind, numbers, {"mode": "sync"}))
    expected = net(0)
    if kind is RMSprop:  # each has an optimizer of its own; the differences are averaged
        models = [net(0) for _ in range(WORKERS)]
        optimizers = [kind(model.parameters(), **numbers) for model in models]
        for step in range(STEPS):
            for worker, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
                optimizer.zero_grad()
                model(batch(worker, step)).square().mean().backward()
                optimizer.step()
            with torch.no_grad():
                for parts in zip(*(model.parameters() for model in models), strict=True):
                    mean = torch.stack(list(parts)).mean(0)
                    for part in parts:
                        part.copy_(mean)
        expected = models[0]
    else:
        optimizer = kind(expected.parameters(), **numbers)
        for step in range(STEPS):
            optimizer.zero_grad()
            sum(expected(batch(worker, step)).square().mean() for worker in range(WORKERS)).div(WORKERS).backward()
            optimizer.step()
    for worker in together:
        for mine, other in zip(worker, expected.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def test_all_begin_with_the_parameters_of_worker_0(cluster: Cluster) -> None:
    def begin(worker: int) -> list[torch.Tensor]:
        with making:
            model = net(worker)
        memory = [parameter.data_ptr() for parameter in model.parameters()]
        with bs.ParameterServer(model, SGD, lr=0.1):
            assert memory == [parameter.data_ptr() for parameter in model.parameters()]
            return list(model.parameters())

    for parameters in must_work(cluster.run(begin, WORKERS)):
        for mine, first in zip(parameters, net(0).parameters(), strict=True):
            assert torch.equal(mine, first)


def slow_and_fast(worker: int, bound: int) -> int:
    model = nn.Linear(1, 1)
    most = 0
    with bs.ParameterServer(model, SGD, lr=0.0, mode="ssp", staleness=bound) as optimizer:
        for _ in range(8 if worker == 0 else 12):
            if worker == 0:
                time.sleep(0.01)
            model.weight.grad = torch.zeros_like(model.weight)
            optimizer.step()
            clocks = next(hub.clocks for name, hub in FakeService.hubs.items() if name.endswith("parameters"))
            most = max(most, clocks.get(worker, 0) - min(clocks.values()))
    return most


def test_options_reach_the_service(cluster: Cluster) -> None:
    # The worker that ends early no longer counts, so that the fast one can end, too.
    ahead = must_work(cluster.run(slow_and_fast, 2, 2))
    assert ahead[1] <= 2
    model = net(0)
    options = {"staleness_rate": True, "compensate": 0.04, "mode": "ssp", "timeout": 7.0}
    cluster.alone()
    with bs.ParameterServer(model, SGD, lr=0.1, **options):
        made = [settings for name, settings in FakeService.made.items() if name.startswith("alone")][-1]
    assert made["rule"] == "sgd:compensates"
    assert (made["staleness"], made["staleness_rate"], made["timeout_s"]) == (3, True, 7.0)


def test_implicit_momentum_is_taken_from_the_explicit_one(cluster: Cluster) -> None:
    def numbers(worker: int, kind: type, given: dict[str, Any]) -> dict[str, float]:
        with bs.ParameterServer(nn.Linear(1, 1), kind, implicit_momentum=True, **given) as optimizer:
            optimizer.step()
            return FakeService.pushed[-1][0][1]

    sgd = must_work(cluster.run(numbers, 4, SGD, {"lr": 0.1, "momentum": 0.9}))
    assert sgd[0]["momentum"] == pytest.approx(0.9 - 0.75)
    sgd = must_work(cluster.run(numbers, 4, SGD, {"lr": 0.1, "momentum": 0.5, "nesterov": True}))
    assert 0 < sgd[0]["momentum"] < 1e-20
    assert must_work(cluster.run(numbers, 2, AdamW, {"betas": (0.9, 0.99)}))[0]["beta1"] == pytest.approx(0.4)


def test_one_worker_keeps_its_own_batch_norm(cluster: Cluster) -> None:
    def model() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))

    ours, theirs = model(), model()
    plain = SGD(theirs.parameters(), lr=0.1)
    with bs.ParameterServer(ours, SGD, lr=0.1) as optimizer:
        for step in range(20):
            for one, its in ((ours, optimizer), (theirs, plain)):
                its.zero_grad()
                one(batch(0, step)).square().mean().backward()
                its.step()
    for (name, mine), other in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize("skips", [[2], [2, 3], []])
def test_a_scaler_that_skips_on_one_worker_stops_nobody(skips: list[int], cluster: Cluster) -> None:
    def train(worker: int) -> float:
        model = nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            model.weight.fill_(0.0)
        with bs.ParameterServer(model, SGD, lr=1.0, mode="sync") as optimizer:
            scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
            for step in range(STEPS):
                is_bad = worker == 1 and step in skips
                model.weight.grad = torch.full((1, 1), float("inf") if is_bad else 1.0) * scaler.scale(
                    torch.ones(())
                )
                scaler.step(optimizer)
                scaler.update()
            return model.weight.item()

    for value in must_work(cluster.run(train, 2)):
        assert value == pytest.approx(-STEPS + len(skips) / 2)


def run_steps(model: nn.Module, optimizer: bs.ParameterServer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        model(batch(0, step)).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize(("kind", "options"), [(AdamW, {}), (RMSprop, {}), (SGD, {"momentum": 0.9, "delay": 1})])
def test_resume(kind: type, options: dict[str, Any], cluster: Cluster) -> None:
    once = net(0)
    with bs.ParameterServer(once, kind, lr=0.01, **options) as optimizer:
        run_steps(once, optimizer, range(10))
        with optimizer.centre():
            pass
    first, second = net(0), net(5)
    with bs.ParameterServer(first, kind, lr=0.01, **options) as optimizer:
        run_steps(first, optimizer, range(5))
        saved = io.BytesIO()
        torch.save([optimizer.state_dict(), optimizer.service_state()], saved)
        grad_at = [parameter.detach().clone() for parameter in first.parameters()]
    saved.seek(0)
    own, service = torch.load(saved, weights_only=True)

    def go_on(worker: int) -> list[torch.Tensor]:
        with bs.ParameterServer(second if worker == 0 else net(9), kind, lr=0.5, **options) as optimizer:
            if worker != 0:
                optimizer.load_service_state(None)
                return []
            optimizer.load_state_dict(own)
            assert optimizer.param_groups[0]["lr"] == 0.01
            optimizer.load_service_state(service)
            for mine, other in zip(second.parameters(), grad_at, strict=True):
                assert torch.equal(mine, other)
            run_steps(second, optimizer, range(5, 10))
            with optimizer.centre():
                return [parameter.detach().clone() for parameter in second.parameters()]

    for mine, other in zip(must_work(cluster.run(go_on, 2))[0], once.parameters(), strict=True):
        if options.get("delay"):  # a step that waited for its pull changes the order
            torch.testing.assert_close(mine, other, rtol=0.1, atol=0.01)
        else:
            torch.testing.assert_close(mine, other)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda saved: None, r"this is no state of a ParameterServer: load what service_state\(\) returned"),
        (lambda saved: {**saved, "strategy": "diloco"}, "this is a state of the strategy 'diloco'"),
        (lambda saved: {**saved, "rule": "adamw"}, "this state has rule 'adamw', but the strategy has 'sgd'"),
        (lambda saved: {**saved, "parameters": ["w (1,) float32, group 0"]}, "of another model: it has 'w"),
    ],
)
def test_a_state_of_something_else(spoil: Callable[[Any], Any], why: str, cluster: Cluster) -> None:
    def load(worker: int) -> None:
        with bs.ParameterServer(nn.Linear(1, 1), SGD, lr=0.1) as optimizer:
            optimizer.load_service_state(spoil(optimizer.service_state()))

    for result in cluster.run(load, 2):
        with pytest.raises(ValueError, match=why):
            raise result
    with (
        bs.ParameterServer(nn.Linear(1, 1), SGD, lr=0.1) as optimizer,
        pytest.raises(ValueError, match=r"load what state_dict\(\) returned"),
    ):
        optimizer.load_state_dict(SGD(nn.Linear(1, 1).parameters()).state_dict())


def test_a_late_worker(cluster: Cluster) -> None:
    def begin(worker: int) -> float:
        model = nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            model.weight.fill_(float(worker))
        optimizer = bs.ParameterServer(model, SGD, lr=1.0, servers=[1])
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
        return model.weight.item()

    must_work(cluster.run(begin, 2))
    model = nn.Linear(1, 1, bias=False)
    cluster.join_late(cluster.name, cluster.store, 1)
    with bs.ParameterServer(model, SGD, lr=1.0) as optimizer:
        assert model.weight.item() == -2.0
        made = FakeService.made[f"{cluster.name}/parameters"]
        assert (made["member"], made["workers"], made["servers"], made["late"]) == (3, 2, [1], True)
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
        assert model.weight.item() == -3.0
    cluster.join_late(cluster.name, cluster.store)
    with pytest.raises(ValueError, match="worker 2 has 'rule adamw', but worker 0 has 'rule sgd'"):
        bs.ParameterServer(model, AdamW, lr=1.0)


def test_an_error_inside_does_not_wait_for_others(cluster: Cluster) -> None:
    def fail(worker: int) -> None:
        with bs.ParameterServer(nn.Linear(1, 1), SGD, lr=1.0):
            raise KeyError("the user's own")

    assert {type(result) for result in cluster.run(fail, 2)} == {KeyError}

# SPDX-License-Identifier: Apache-2.0
"""The event simulation itself, and a parameter server that follows it."""

import threading
from typing import Any

import braid.strategies as bs
import numpy as np
import pytest
import torch
from event_simulation import Event, replay, simulate, staleness
from fake_cluster import Cluster
from fake_service import FakeService
from slowness import limit
from torch.optim import SGD

pytestmark = pytest.mark.unit

TIMES = (0.25, 0.27, 0.5, 1.0)
SIZE = 5


def gradient(worker: int, step: int, values: np.ndarray) -> np.ndarray:
    """Of a quadratic whose minimum depends on the worker, and changes with the step."""
    target = np.random.default_rng((worker, step)).normal(worker, 0.1, values.size)
    return (values - target).astype(np.float32)


def test_staleness_is_what_step_times_say() -> None:
    log = simulate(TIMES, 4000)
    for worker, own in enumerate(TIMES):
        found = staleness(log, worker)
        mean = sum(stale * count for stale, count in found.items()) / found.total()
        others = sum(own / other for place, other in enumerate(TIMES) if place != worker)
        assert mean == pytest.approx(others, rel=0.02)


def test_one_worker_is_never_stale() -> None:
    log = simulate([1.0], 30)
    assert staleness(log) == {0: 30}
    values = replay(log, np.zeros(SIZE), gradient, "sgd", {"rate": 0.1, "weight_decay": 0.0})
    expected = np.zeros(SIZE)
    for step in range(30):
        expected = expected - 0.1 * (expected - np.random.default_rng((0, step)).normal(0, 0.1, SIZE))
    np.testing.assert_allclose(values[-1], expected, rtol=1e-5, atol=1e-6)


def test_a_stale_gradient_is_that_of_old_values() -> None:
    log = [Event(0, 0, 0), Event(1, 0, 0)]
    numbers = {"rate": 0.5, "weight_decay": 0.0, "lambda": 0.0}
    plain = replay(log, np.zeros(1), lambda worker, step, values: values + 1, "sgd", numbers)
    assert [value[0] for value in plain] == [0, -0.5, -1.0]
    corrected = replay(
        log, np.zeros(1), lambda worker, step, values: values + 1, "sgd:compensates", {**numbers, "lambda": 0.5}
    )
    assert corrected[-1][0] == pytest.approx(-0.5 - 0.5 * (1 + 0.5 * (-0.5 - 0)))


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({}, "sgd"),
        ({"momentum": 0.9}, "sgd:momentum"),
        ({"compensate": 0.04}, "sgd:compensates"),
        ({"staleness_rate": True}, "sgd"),
    ],
)
def test_a_parameter_server_follows_the_simulation(options: dict[str, Any], rule: str, cluster: Cluster) -> None:
    log = simulate(TIMES, 60)
    turn = {"place": 0}
    changed = threading.Condition()
    # The first gradients are all computed from the same values.
    begun = threading.Barrier(len(TIMES), timeout=limit(30))

    def work(worker: int) -> list[float]:
        model = torch.nn.Module()
        model.weight = torch.nn.Parameter(torch.ones(SIZE))
        optimizer = bs.ParameterServer(model, SGD, lr=0.05, **options)
        begun.wait()
        mine = [place for place, event in enumerate(log) if event.worker == worker]
        for step, place in enumerate(mine):
            values = model.weight.detach().numpy()
            model.weight.grad = torch.from_numpy(gradient(worker, step, values))
            with changed:
                assert changed.wait_for(lambda place=place: turn["place"] == place, 30)
                optimizer.step()
                turn["place"] += 1
                changed.notify_all()
        with changed:
            assert changed.wait_for(lambda: turn["place"] == len(log), 30)
        with optimizer.centre():
            return model.weight.tolist()

    results = cluster.run(work, len(TIMES))
    numbers = {"rate": 0.05, "weight_decay": 0.0, "momentum": 0.9, "dampening": 0.0, "lambda": 0.04}
    expected = replay(
        log, np.ones(SIZE), gradient, rule, numbers, divide_by_staleness=options.get("staleness_rate", False)
    )
    for result in results:
        np.testing.assert_allclose(result, expected[-1], rtol=1e-5)
    hub = next(iter(FakeService.hubs.values()))
    assert hub.order == [event.worker for event in log]
    assert hub.staleness == staleness(log)

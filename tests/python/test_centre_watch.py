# SPDX-License-Identifier: Apache-2.0
"""What a worker is told of the centre, and the outer momentum that an inner optimizer bears."""

from collections.abc import Callable, Iterator
from typing import Any

import braid.strategies as bs
import pytest
import torch
import torch.distributed as dist
from braid.strategies.local.outer import usual_momentum
from braid.strategies.watch import CentreWatch
from torch import nn
from torch.optim import SGD, Adam, AdamW, RMSprop

pytestmark = pytest.mark.unit

Make = Callable[[Any], torch.optim.Optimizer]


@pytest.mark.parametrize(
    ("make", "momentum"),
    [
        (lambda each: SGD(each, lr=0.1), 0.9),
        (Adam, 0.9),
        (AdamW, 0.9),
        (RMSprop, 0.9),
        (lambda each: SGD(each, lr=0.1, momentum=0.9), 0.5),
        (lambda each: RMSprop(each, momentum=0.1), 0.5),
        (lambda each: SGD([{"params": list(each), "momentum": 0.9}], lr=0.1), 0.5),
    ],
)
def test_inner_momentum_gets_less_outer_momentum(make: Make, momentum: float) -> None:
    assert usual_momentum(make(nn.Linear(1, 1).parameters())) == momentum


def test_what_is_no_optimizer_is_left_to_others_to_refuse() -> None:
    assert usual_momentum(None) == 0.9


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ([2.0, 4.9], []),
        ([5.1, 7.0], ["after 1 rounds the norm of the parameters is 5 times the first one. If the loss rises, "]),
        ([0.0, float("nan"), float("inf")], ["after 2 rounds the parameters are not finite: NaN, or an infinity"]),
    ],
)
def test_a_centre_that_runs_away_is_told_once(values: list[float], lines: list[str], capsys) -> None:
    watch = CentreWatch("diloco", [torch.ones(3), torch.ones(0)])
    for rounds, value in enumerate(values, 1):
        watch.moved([torch.full((3,), value), torch.ones(0)], rounds)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == len(lines)
    for line, begin in zip(told, lines, strict=True):
        assert line.startswith(f"braid: strategy diloco: {begin}")


@pytest.mark.parametrize("parameters", [[], [torch.zeros(3)]], ids=["none", "zeros"])
def test_a_model_of_zeros_may_grow(parameters: list[torch.Tensor], capsys) -> None:
    watch = CentreWatch("diloco", parameters)
    watch.moved([each + 9 for each in parameters], 1)
    assert not capsys.readouterr().err


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(4, 2)).square().mean().backward()
    optimizer.step()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("kind", [bs.DiLoCo, bs.LocalSGD, bs.ElasticAverage])
def test_a_centre_that_nobody_has_moved_is_told(kind: Any, capsys) -> None:
    model = nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), lr=0.01)
    options = {"schedule": "sync1"} if kind is bs.ElasticAverage else {}
    with kind(model, optimizer, sync_every=4, **options) as strategy:
        with strategy.centre():
            assert not capsys.readouterr().err  # no step was taken
        step(model, optimizer)
        with strategy.centre():
            pass
        with strategy.centre():
            pass
        (line,) = capsys.readouterr().err.splitlines()
        assert "centre() shows the values that this worker began with: after 1 steps no exchange has" in line
        for _ in range(3):
            step(model, optimizer)
        with strategy.centre():
            assert not capsys.readouterr().err


@pytest.mark.usefixtures("alone")
def test_steps_that_move_nothing_are_no_reason(capsys) -> None:
    model = nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), lr=0.0)
    with bs.DiLoCo(model, optimizer, sync_every=4) as strategy:
        step(model, optimizer)
        with strategy.centre():
            assert not capsys.readouterr().err


@pytest.mark.usefixtures("alone")
def test_an_outer_step_that_is_far_too_long_is_told(capsys) -> None:
    model = nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), lr=0.5)
    with bs.DiLoCo(model, optimizer, sync_every=1, outer_lr=30.0, outer_momentum=0.0):
        for _ in range(6):
            step(model, optimizer)
    (line,) = capsys.readouterr().err.splitlines()
    assert "times the first one. If the loss rises, the outer steps are too long" in line

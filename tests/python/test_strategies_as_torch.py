# SPDX-License-Identifier: Apache-2.0
"""One worker of a parameter server trains as torch's own optimizers do."""

from collections.abc import Callable
from typing import Any

import braid.strategies as bs
import pytest
import torch
from fake_cluster import Cluster
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("cluster")]

STEPS = 50
ZERO = torch.optim.lr_scheduler


class Net(nn.Module):
    """Two layers of one shape, so that weights can be tied."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.last = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    data = torch.Generator().manual_seed(step)
    return torch.randn(8, 6, generator=data), torch.randint(3, (8,), generator=data)


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    x, y = batch(step)
    return nn.functional.cross_entropy(model(x), y)


def plain_loop(model: nn.Module, optimizer: Optimizer) -> None:
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()


def must_be_equal(
    kind: type[Optimizer],
    numbers: dict[str, Any],
    loop: Callable[[nn.Module, Optimizer], None] = plain_loop,
    make: Callable[[], nn.Module] = net,
    groups: Callable[[nn.Module], list[Any]] | None = None,
    tolerance: float = 1e-6,
    **options: Any,
) -> None:
    theirs, ours = make(), make()
    loop(theirs, kind(groups(theirs) if groups else theirs.parameters(), **numbers))
    with bs.ParameterServer(
        ours, kind, params=groups(ours) if groups else None, **options, **numbers
    ) as optimizer:
        loop(ours, optimizer)
    before = dict(make().named_parameters())
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")
        assert not other.requires_grad or not torch.equal(mine, before[name]), f"{name} was not trained"


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (SGD, {"lr": 0.1}),
        (SGD, {"lr": 0.1, "weight_decay": 0.01}),
        (SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
        (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        (SGD, {"lr": 0.1, "momentum": 0.9, "maximize": True, "weight_decay": 0.1}),
        (SGD, {"lr": torch.tensor(0.1), "dampening": 0.5}),
        (Adam, {"lr": 0.01, "weight_decay": 0.01}),
        (Adam, {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "amsgrad": True}),
        (Adam, {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
        (AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    ],
)
def test_rules_at_the_servers(kind: type[Optimizer], numbers: dict[str, Any]) -> None:
    must_be_equal(kind, numbers)


@pytest.mark.parametrize(
    ("kind", "numbers", "options"),
    [
        (RMSprop, {"lr": 0.01}, {}),
        (torch.optim.Adagrad, {"lr": 0.1}, {}),
        (Adam, {"lr": 0.01}, {"local": True}),
        (RMSprop, {"lr": 0.01}, {"delay": 1}),
    ],
)
def test_local_steps_push_differences(
    kind: type[Optimizer], numbers: dict[str, Any], options: dict[str, Any]
) -> None:
    must_be_equal(kind, numbers, **options)


def two_groups(model: nn.Module) -> list[Any]:
    weights = [p for p in model.parameters() if p.dim() > 1]
    biases = [p for p in model.parameters() if p.dim() == 1]
    return [{"params": weights, "weight_decay": 0.1}, {"params": biases, "lr": 0.5, "momentum": 0.0}]


def test_groups_have_their_own_numbers() -> None:
    must_be_equal(SGD, {"lr": 0.05, "momentum": 0.9}, groups=two_groups)
    nesterov = [{"nesterov": True}, {"nesterov": False}]

    def groups(model: nn.Module) -> list[Any]:
        return [{**group, **more} for group, more in zip(two_groups(model), nesterov, strict=True)]

    must_be_equal(SGD, {"lr": 0.05, "momentum": 0.9}, groups=groups)


@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: ZERO.StepLR(optimizer, 7, 0.5),
        lambda optimizer: ZERO.OneCycleLR(optimizer, 0.2, total_steps=STEPS + 1),  # changes momentum, too
        lambda optimizer: ZERO.SequentialLR(
            optimizer, [ZERO.LinearLR(optimizer, 0.1), ZERO.CosineAnnealingLR(optimizer, 40)], [10]
        ),
    ],
)
def test_schedulers(schedule: Callable[[Optimizer], Any]) -> None:
    def loop(model: nn.Module, optimizer: Optimizer) -> None:
        scheduler = schedule(optimizer)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
            scheduler.step()

    must_be_equal(SGD, {"lr": 0.1, "momentum": 0.9}, loop, groups=two_groups)


@pytest.mark.parametrize("unscales", [False, True])
@pytest.mark.parametrize(("kind", "options"), [(SGD, {}), (SGD, {"mode": "async", "local": True}), (Adam, {})])
def test_grad_scaler(unscales: bool, kind: type[Optimizer], options: dict[str, Any]) -> None:
    def loop(model: nn.Module, optimizer: Optimizer) -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=5)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            scaler.scale(loss * float("inf") if step in (3, 20) else loss).backward()
            if unscales:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()

    must_be_equal(kind, {"lr": 0.01}, loop, **options)


def test_a_skipped_step_is_counted() -> None:
    model = net()
    with bs.ParameterServer(model, SGD, lr=0.1) as optimizer:
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(loss_of(model, 0) * float("nan")).backward()
        scaler.step(optimizer)
        assert (optimizer.stats()["steps"], optimizer.stats()["skipped"]) == (0, 1)


def test_accumulation_clipping_and_missing_gradients() -> None:
    def loop(model: nn.Module, optimizer: Optimizer) -> None:
        for step in range(STEPS):
            (loss_of(model, step) / 2).backward()
            if step % 2:
                nn.utils.clip_grad_norm_(model.parameters(), 0.3)
                optimizer.step()
                optimizer.zero_grad(set_to_none=step % 4 == 1)

    must_be_equal(AdamW, {"lr": 0.01}, loop)

    def zero(model: nn.Module, optimizer: Optimizer) -> None:
        """torch's momentum goes on with gradients of zeros, ours with none."""
        for step in range(STEPS):
            optimizer.zero_grad(set_to_none=isinstance(optimizer, bs.ParameterServer))
            loss_of(model, step).backward()
            if step % 3 == 1:
                for parameter in model.first.parameters():
                    parameter.grad = (
                        None if isinstance(optimizer, bs.ParameterServer) else torch.zeros_like(parameter)
                    )
            optimizer.step()

    must_be_equal(SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}, zero)


def test_closure() -> None:
    calls = []

    def loop(model: nn.Module, optimizer: Optimizer) -> None:
        for step in range(STEPS):

            def closure(step: int = step) -> torch.Tensor:
                calls.append(step)
                optimizer.zero_grad()
                loss = loss_of(model, step)
                loss.backward()
                return loss

            before = loss_of(model, step)
            assert torch.equal(optimizer.step(closure), before)

    must_be_equal(Adam, {"lr": 0.01}, loop)
    assert calls == 2 * list(range(STEPS))


def test_tied_and_frozen_parameters() -> None:
    def make() -> nn.Module:
        model = net()
        model.second.weight = model.first.weight
        model.last.bias.requires_grad_(False)
        return model

    must_be_equal(AdamW, {"lr": 0.01}, make=make)
    model = make()
    with bs.ParameterServer(model, SGD, lr=0.1) as optimizer:
        names = optimizer.state_dict()["braid"]["parameters"]
    assert [name.split()[0] for name in names] == ["first.weight", "first.bias", "second.bias", "last.weight"]


def test_sparse_gradients_become_dense() -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Flatten(), nn.Linear(8, 3))

    def loop(model: nn.Module, optimizer: Optimizer) -> None:
        for step in range(STEPS):
            optimizer.zero_grad()
            x, y = torch.randint(10, (8, 2), generator=torch.Generator().manual_seed(step)), batch(step)[1]
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    must_be_equal(SGD, {"lr": 0.1}, loop, make=make)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_servers_keep_float32_of_16_bits(dtype: torch.dtype) -> None:
    def make() -> nn.Module:
        return nn.Linear(1, 1, bias=False).to(dtype)

    model = make()
    with torch.no_grad():
        model.weight.fill_(1.0)
    memory = model.weight.data_ptr()
    with bs.ParameterServer(model, SGD, lr=1e-4) as optimizer:
        for _ in range(10_000):
            model.weight.grad = torch.ones_like(model.weight)
            optimizer.step()
    # Each update alone is too small to change a number of 16 bits near 1.
    assert model.weight.item() == pytest.approx(0.0, abs=1e-3)
    assert model.weight.dtype == dtype
    assert model.weight.data_ptr() == memory


def test_delay_applies_the_last_gradient_in_the_next_step(cluster: Cluster) -> None:
    expected, model = net(), net()
    plain = SGD(expected.parameters(), lr=0.1)
    with bs.ParameterServer(model, SGD, lr=0.1, delay=1) as optimizer:
        late: list[torch.Tensor] | None = None
        for step in range(STEPS):
            for one, other in zip(model.parameters(), expected.parameters(), strict=True):
                torch.testing.assert_close(one, other)
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
            plain.zero_grad()
            loss_of(expected, step).backward()
            gradients = [parameter.grad for parameter in expected.parameters()]
            if late is not None:
                for parameter, gradient in zip(expected.parameters(), late, strict=True):
                    parameter.grad = gradient
                plain.step()
            late = gradients
        for parameter, gradient in zip(expected.parameters(), late or [], strict=True):
            parameter.grad = gradient
        plain.step()
        with optimizer.centre():  # has the last gradient, too
            for one, other in zip(model.parameters(), expected.parameters(), strict=True):
                torch.testing.assert_close(one, other)

# SPDX-License-Identifier: Apache-2.0
"""The outer optimizer of DiLoCo: any of torch's, on the centre. Its gradient is centre - mean of the workers."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

OuterFactory = Callable[[Any], torch.optim.Optimizer]  # parameters -> an optimizer of them

DEFAULT_RATE = 0.7  # Douillard et al. 2023
# Theirs is 0.9, for AdamW inside. An inner optimizer with momentum m takes steps 1 / (1 - m) times as long, and an
# outer momentum makes them longer once more: 0.9 on 0.9 diverges.
DEFAULT_MOMENTUM = 0.9
DEFAULT_MOMENTUM_ON_MOMENTUM = 0.5


def usual_momentum(inner: Any) -> float:
    """Return the outer momentum that an inner optimizer bears, if the user names none.

    Example:
        >>> model = torch.nn.Linear(1, 1)
        >>> usual_momentum(torch.optim.AdamW(model.parameters()))
        0.9
        >>> usual_momentum(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        0.5
    """
    groups = getattr(inner, "param_groups", [])  # what is no optimizer is refused later
    has_momentum = any(group.get("momentum") for group in groups if isinstance(group, dict))
    return DEFAULT_MOMENTUM_ON_MOMENTUM if has_momentum else DEFAULT_MOMENTUM


def nesterov(rate: float, momentum: float) -> OuterFactory:
    """Return a factory of SGD with Nesterov momentum; without any if it is 0."""

    def make(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=rate, momentum=momentum, nesterov=momentum > 0)

    return make


def try_out(factory: Any) -> torch.optim.Optimizer:
    """Make an optimizer of one number, to see whether it can be one.

    Raises:
        TypeError, ValueError: it cannot; the message is one sentence.
    """
    if isinstance(factory, torch.optim.Optimizer) or not callable(factory):
        raise TypeError(
            "outer_optimizer= takes what makes an optimizer, as lambda parameters: SGD(parameters, lr=0.7), "
            f"not {type(factory).__name__}"
        )
    try:
        made = factory([nn.Parameter(torch.zeros(1, dtype=torch.float32))])
    except Exception as error:
        why = " ".join(str(error).split())
        raise ValueError(f"outer_optimizer= made no optimizer of a list of parameters: {why}") from error
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(f"outer_optimizer= made no optimizer of torch, but a {type(made).__name__}")
    if isinstance(made, torch.optim.LBFGS):
        raise ValueError("outer_optimizer= made LBFGS, which needs closures: a centre has none")
    return made


def describe(factory: OuterFactory | None) -> str:
    """Return in one line what all workers must have in common."""
    if factory is None:
        return "outer mean"
    made = try_out(factory)
    return f"outer {type(made).__name__} {sorted(made.defaults.items())}"


class Outer:
    """An outer optimizer, and the parameters that it has: parts of the centre, which it changes in place."""

    def __init__(self, factory: OuterFactory, centre: Sequence[Tensor]) -> None:
        """Make it for some parts of the centre."""
        self._parameters = [nn.Parameter(part) for part in centre]
        self.optimizer = factory(self._parameters)

    def step(self, moved: Sequence[Tensor]) -> None:
        """Take a step.

        Args:
            moved: how far the workers have moved from the centre, in the mean. It is overwritten.
        """
        for parameter, difference in zip(self._parameters, moved, strict=True):
            parameter.grad = difference.neg_()
        self.optimizer.step()
        for parameter in self._parameters:
            parameter.grad = None

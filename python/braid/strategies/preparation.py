# SPDX-License-Identifier: Apache-2.0
"""What a worker finds out by itself before it meets the others: optimizer, packing, rule, and whether they fit."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from braid._array.parameters import codec_of
from braid._array.servers.terms import Vector
from braid.strategies.attachment import refuse_unmade
from braid.strategies.averages import RULE
from braid.strategies.buffers import Buffers, buffers_of
from braid.strategies.model_state import ModelState, read_model
from braid.strategies.options import Options
from braid.strategies.packing import Packing
from braid.strategies.rules import AT_SERVER, LocalRule, Rule, ServerRule

# Parameters that a strategy has, until it is closed.
_taken = WeakTensorKeyDictionary()


@dataclass
class Prepared:
    """What a parameter server works on. `buffers` is None where they stay each worker's."""

    inner: torch.optim.Optimizer
    state: ModelState
    rule: Rule
    buffers: Buffers | None

    @property
    def packing(self) -> Packing:
        """The trained parameters."""
        return self.state.parameters

    def describe(self, options: Options) -> list[str]:
        """Return what all workers must have in common, one line each."""
        own = ["strategy parameter_server", f"rule {self.rule.text}", *options.describe()]
        return own + self.state.describe()

    def vectors(self, options: Options) -> list[Vector]:
        """Return what servers without a rank are asked to hold."""
        found = [
            Vector(
                *("parameters", self.packing.elements, self.rule.text, options.mode),
                *(codec_of(options.compression), codec_of(options.pull_compression), options.replicas),
            )
        ]
        return found + ([Vector("buffers", self.buffers.packing.elements, RULE)] if self.buffers else [])

    def scale_ignored(self, scale: float) -> None:
        """Undo the scale of the loss in the gradients that no strategy has."""
        gradients = [entry.tensor.grad for entry in self.state.ignored if entry.tensor.grad is not None]
        if gradients and scale != 1.0:
            torch._foreach_mul_(gradients, scale)

    def step_ignored(self) -> None:
        """Let the optimizer step with the parameters that are each worker's own; servers step with the others."""
        if not self.state.ignored or isinstance(self.rule, LocalRule):
            return  # that rule lets the optimizer step with all
        others = [entry.tensor for entry in self.packing.entries]
        gradients = [tensor.grad for tensor in others]
        for tensor in others:
            tensor.grad = None
        try:
            self.inner.step()
        finally:
            for tensor, gradient in zip(others, gradients, strict=True):
                tensor.grad = gradient

    def release(self) -> None:
        """Forget that a strategy has these parameters."""
        release(self.packing)


def take(packing: Packing) -> None:
    """Note that a strategy has these parameters; ValueError if another one has them."""
    for entry in packing.entries:
        if entry.tensor in _taken:
            raise ValueError(f"{entry.name} belongs to another strategy already: close that one first")
    for entry in packing.entries:
        _taken[entry.tensor] = True


def release(packing: Packing) -> None:
    """Forget that a strategy has these parameters."""
    for entry in packing.entries:
        _taken.pop(entry.tensor, None)


def refuse_wrapped(model: Any) -> None:
    """Raise TypeError or ValueError if `model` is no bare module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"a strategy takes a model and then an optimizer class, not {type(model).__name__}")
    if isinstance(getattr(model, "_orig_mod", model), nn.parallel.DistributedDataParallel):
        raise ValueError("DistributedDataParallel averages gradients itself: give the model inside, ddp.module")


def prepare(
    model: nn.Module,
    inner: Any,
    params: Iterable[Any] | None,
    numbers: dict[str, Any],
    options: Options,
) -> Prepared:
    """Read a model and an optimizer.

    Args:
        model: gives parameters their names.
        inner: a class, or an optimizer that has not stepped.
        params: what the class is made with; None for all parameters of the model.
        numbers: the other arguments of the class.
        options: how workers and servers work together.

    Raises:
        TypeError, ValueError: something does not fit; the message is one sentence.
    """
    refuse_wrapped(model)
    optimizer = _made(model, inner, params, numbers)
    is_local = options.local or type(optimizer) not in AT_SERVER
    options.check(is_local=is_local)
    state = read_model(model, optimizer.param_groups, buffers=options.buffers, init_sync=options.init_sync)
    packing = state.parameters
    rule: Rule
    if is_local:
        rule = LocalRule(optimizer, packing)
    else:
        rule = ServerRule(*(optimizer, packing), compensate=options.compensate, implicit=options.implicit_momentum)
    prepared = Prepared(optimizer, state, rule, buffers_of(state.averages, options.buffers))
    take(packing)
    return prepared


def _made(
    model: nn.Module, inner: Any, params: Iterable[Any] | None, numbers: dict[str, Any]
) -> torch.optim.Optimizer:
    if isinstance(inner, torch.optim.Optimizer):
        refuse_unmade(inner)
        if params is not None or numbers:
            raise TypeError("an optimizer that is made already has its parameters and numbers: give no others")
        if inner.state:
            raise ValueError(
                "the optimizer has stepped before the strategy began: make the strategy before the first step"
            )
        return inner
    if not (isinstance(inner, type) and issubclass(inner, torch.optim.Optimizer)):
        raise TypeError(f"a strategy takes a class of torch.optim, such as SGD, not {inner!r}")
    given: list[Tensor] | list[Any] = list(model.parameters() if params is None else params)
    return inner(given, **numbers)

# SPDX-License-Identifier: Apache-2.0
"""Refuses steps of other optimizers over parameters that servers hold: nobody would push them."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from braid.strategies.packing import Packing

# By id, because optimizers look often; weak, because a strategy may be dropped without close(), and then another
# tensor may have this id.
_held: dict[int, tuple["weakref.ref[Tensor]", str, "OutsideSteps"]] = {}


class OutsideSteps:
    """Looks at each optimizer that steps in this process, until stop() is called."""

    def __init__(self, strategy: torch.optim.Optimizer, packing: Packing) -> None:
        """Begin to look.

        Args:
            strategy: the optimizer whose steps are pushed.
            packing: its parameters.
        """
        self._name = type(strategy).__name__
        self._strategy = weakref.ref(strategy)
        self._allowed: torch.optim.Optimizer | None = None
        self._is_own = False
        self._ids = [id(entry.tensor) for entry in packing.entries]
        for entry in packing.entries:
            _held[id(entry.tensor)] = (weakref.ref(entry.tensor), entry.name, self)

    def allow(self, optimizer: torch.optim.Optimizer) -> None:
        """Let this optimizer step: its steps are those of the strategy."""
        self._allowed = optimizer

    @contextmanager
    def own_step(self) -> Iterator[None]:
        """Let optimizers step in this context: the strategy calls them."""
        self._is_own = True
        try:
            yield
        finally:
            self._is_own = False

    def stop(self) -> None:
        """Look no more. Idempotent."""
        for key in self._ids:
            if key in _held and _held[key][2] is self:
                del _held[key]
        self._ids = []
        self._allowed = None

    def check(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        """Raise RuntimeError if a step of this optimizer, which has the parameter `name`, would not be pushed."""
        strategy = self._strategy()
        if strategy is None or self._is_own or optimizer is strategy or optimizer is self._allowed:
            return
        raise RuntimeError(
            f"{type(optimizer).__name__}.step() changes {name}, but servers would not hear of it: call step() of "
            f"the strategy, which is the optimizer: opt = bs.{self._name}(model, torch.optim.SGD, lr=...)"
        )


def _look(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not _held:
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            found = _held.get(id(parameter))
            if found is not None and found[0]() is parameter:
                found[2].check(optimizer, found[1])


# Once, for all strategies: torch walks over its hooks in each step, and other threads may step just now.
register_optimizer_step_pre_hook(_look)

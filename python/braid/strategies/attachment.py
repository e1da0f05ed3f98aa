# SPDX-License-Identifier: Apache-2.0
"""Attaches a strategy to an optimizer that stays the user's: hooks of that instance, around each step."""

from collections.abc import Callable
from typing import Any

import torch


class Attachment:
    """Calls `before` and `after` around each step of one optimizer.

    torch runs hooks twice for a subclass that calls ``super().step()``: those count as one step. A step that
    raised has no end, so the next one continues it. A step that a GradScaler leaves out has no hooks at all,
    unless the optimizer is fused.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, before: Callable[[], None], after: Callable[[], None]
    ) -> None:
        """Register the hooks; refuse() says which optimizers cannot have them."""
        self._before, self._after = before, after
        self._is_inside = False
        self._handles = [
            optimizer.register_step_pre_hook(self._begin),
            optimizer.register_step_post_hook(self._end),
        ]

    def detach(self) -> None:
        """Remove the hooks. Idempotent."""
        for handle in self._handles:
            handle.remove()

    def _begin(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs.get("closure") is not None or any(value is not None for value in args[1:]):
            raise RuntimeError(
                "a strategy cannot follow a closure: compute the gradients first, then call step() without one"
            )
        if self._is_inside:
            return
        self._before()
        self._is_inside = True

    def _end(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._is_inside:
            return
        self._is_inside = False
        self._after()


def refuse(optimizer: Any) -> None:
    """Raise TypeError or ValueError if a strategy cannot attach to this object."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            f"this strategy attaches to an optimizer that is made: give SGD(model.parameters(), ...), "
            f"not {optimizer!r}"
        )
    refuse_unmade(optimizer)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("LBFGS evaluates its closure several times a step: a strategy cannot follow it")


def refuse_unmade(optimizer: torch.optim.Optimizer) -> None:
    """Raise TypeError if the optimizer's class leaves out Optimizer.__init__: it lacks what strategies use."""
    if not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise TypeError(
            f"{type(optimizer).__name__} does not call Optimizer.__init__, so a strategy cannot follow it: call "
            "super().__init__(params, defaults) there, or give the optimizer inside it"
        )

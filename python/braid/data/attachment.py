# SPDX-License-Identifier: Apache-2.0
"""Weighs the gradients of a model, and measures how long it computes without waiting for others.

Gradients are scaled by hooks of the parameters, before anybody adds or averages them. So it makes no difference
how they are averaged: DistributedDataParallel with any hook of its own, accumulation, a strategy, or by hand.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from braid.data.speeds import Speed


class Attachment:
    """Hooks of one model. remove() takes them away."""

    def __init__(self, model: nn.Module, weight: Callable[[], float], speed: Callable[[], Speed | None]) -> None:
        """Register the hooks.

        Args:
            model: DistributedDataParallel, or a bare module.
            weight: returns by what gradients of the batch of now are multiplied.
            speed: returns what is told of the time; None: nothing is measured now.
        """
        self._weight_now, self._speed_now = weight, speed
        self._weight, self._speed, self._is_backward, self._entered = 1.0, speed(), False, 0.0
        self._without_hook = list(model.parameters())
        self._handles: list[Any] = [model.register_forward_pre_hook(self._enter)]
        if isinstance(model, nn.parallel.DistributedDataParallel):
            self._handles.append(model.module.register_forward_pre_hook(self._pass_on, prepend=True))
        self._hook_parameters()

    def remove(self) -> None:
        """Remove all hooks. Idempotent."""
        for handle in self._handles:
            handle.remove()
        self._without_hook.clear()

    def _hook_parameters(self) -> None:
        # A frozen parameter takes no hook. It may be thawed later.
        trained = [parameter for parameter in self._without_hook if parameter.requires_grad]
        if trained:
            self._handles += [parameter.register_hook(self._weigh) for parameter in trained]
            self._without_hook = [each for each in self._without_hook if not each.requires_grad]

    def _enter(self, module: nn.Module, inputs: object) -> None:
        self._hook_parameters()
        self._is_backward = False  # a backward that raised has no end
        self._entered = time.perf_counter()

    def _pass_on(self, module: nn.Module, inputs: object) -> None:
        # In between DistributedDataParallel broadcasts buffers, and waits for rank 0.
        if (speed := self._speed_now()) is not None:
            speed.leave_out(time.perf_counter() - self._entered)

    def _weigh(self, gradient: Tensor) -> Tensor:
        if not self._is_backward:
            self._is_backward = True
            self._weight, self._speed = self._weight_now(), self._speed_now()
            # Called when all gradients are there: before DistributedDataParallel waits, which queues later.
            torch.autograd.Variable._execution_engine.queue_callback(self._computed)
            self._device = gradient.device
        return gradient if self._weight == 1.0 else gradient * self._weight

    def _computed(self) -> None:
        if self._speed is not None:
            if self._device.type != "cpu":
                torch.accelerator.current_stream(self._device).synchronize()
            self._speed.computed()
        torch.autograd.Variable._execution_engine.queue_callback(self._waited)

    def _waited(self) -> None:
        self._is_backward = False
        if self._speed is not None:
            self._speed.resumed()

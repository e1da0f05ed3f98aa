# SPDX-License-Identifier: Apache-2.0
"""How a training step spends the time in which it computes: not at all, asleep, or with real matrix products."""

import itertools
import time
from collections.abc import Sequence
from typing import Protocol

import torch

from braid._bench.ddp.models import Layer

_FORWARD_SHARE = 1 / 3  # the backward has two products for each one of the forward


class Compute(Protocol):
    """The work of one step. Layers are numbered in the order of the forward."""

    def start(self) -> None:
        """Begin a step."""

    def forward(self, layer: int) -> None:
        """Do the forward of a layer."""

    def backward(self, layer: int) -> None:
        """Do the backward of a layer."""


class NoCompute:
    """A step that computes nothing."""

    def start(self) -> None:
        """Begin a step."""

    def forward(self, layer: int) -> None:
        """Return at once."""

    def backward(self, layer: int) -> None:
        """Return at once."""


class SleptCompute:
    """A step of a given length during which this rank sleeps, as if an accelerator computed.

    Layers take shares of it by their multiply-accumulates. When each is over is planned at the start of the
    step, so a late wake-up, or work for the communication in between, delays no other layer: the accelerator
    would not have waited either.

    Args:
        layers: in the order of the forward.
        step_s: the length of a step in seconds.
    """

    def __init__(self, layers: Sequence[Layer], step_s: float) -> None:
        work = [layer.macs for layer in layers]
        total = max(1, sum(work))
        forward_s = step_s * _FORWARD_SHARE
        self._step_s = step_s
        done = [sum_ / total for sum_ in itertools.accumulate(work)]
        self._forward_ends_s = [forward_s * share for share in done]
        # The backward of a layer ends when that of all layers before it is left.
        left = [share - own / total for share, own in zip(done, work, strict=True)]
        self._backward_ends_s = [step_s - (step_s - forward_s) * share for share in left]
        self._start = 0.0

    def start(self) -> None:
        """Plan a step that starts now."""
        self._start = time.perf_counter()

    def forward(self, layer: int) -> None:
        """Sleep until the forward of a layer is over."""
        self._sleep_until(self._forward_ends_s[layer])

    def backward(self, layer: int) -> None:
        """Sleep until the backward of a layer is over."""
        self._sleep_until(self._backward_ends_s[layer])

    def _sleep_until(self, planned_s: float) -> None:
        if (left_s := self._start + planned_s - time.perf_counter()) > 0:
            time.sleep(left_s)


class ProductCompute:
    """A step that does the matrix products of each layer on this processor: one forward, two backward.

    Args:
        layers: in the order of the forward.
        weights: the weight of each layer, float32 and contiguous, or None where it has none of its own.
        batch: samples of a step.
    """

    def __init__(self, layers: Sequence[Layer], weights: Sequence[torch.Tensor | None], batch: int) -> None:
        self._shapes = [(batch * layer.product[0], *layer.product[1:]) for layer in layers]
        self._weights = [None if weight is None else weight.detach().view(-1) for weight in weights]
        inputs, outputs = 1, 1
        for (positions, fan_in, fan_out), weight in zip(self._shapes, self._weights, strict=True):
            inputs = max(inputs, positions * max(fan_in, fan_out), fan_in * fan_out if weight is None else 0)
            outputs = max(outputs, positions * fan_out, positions * fan_in, fan_in * fan_out)
        # All layers share these. Numbers only go from the one to the other: fed back, they would leave the
        # range that processors are quick with.
        self._inputs = torch.ones(inputs, dtype=torch.float32)
        self._outputs = torch.empty(outputs, dtype=torch.float32)

    def start(self) -> None:
        """Begin a step."""

    def forward(self, layer: int) -> None:
        """Multiply a layer's input by its weight."""
        positions, fan_in, _ = self._shapes[layer]
        if positions:
            self._multiply(self._input(positions, fan_in), self._weight(layer))

    def backward(self, layer: int) -> None:
        """Multiply the gradient of a layer's output by its input, and by its weight."""
        positions, fan_in, fan_out = self._shapes[layer]
        if positions:
            gradient = self._input(positions, fan_out)
            self._multiply(self._input(positions, fan_in).t(), gradient)
            self._multiply(gradient, self._weight(layer).t())

    def _input(self, rows: int, columns: int) -> torch.Tensor:
        return self._inputs[: rows * columns].view(rows, columns)

    def _weight(self, layer: int) -> torch.Tensor:
        _, fan_in, fan_out = self._shapes[layer]
        weight = self._weights[layer]
        return self._input(fan_in, fan_out) if weight is None else weight.view(fan_in, fan_out)

    def _multiply(self, left: torch.Tensor, right: torch.Tensor) -> None:
        rows, columns = left.shape[0], right.shape[1]
        torch.mm(left, right, out=self._outputs[: rows * columns].view(rows, columns))

# SPDX-License-Identifier: Apache-2.0
"""A torch module with a model's parameters, whose backward brings their gradients as that of the model would."""

from typing import Any

import torch
from torch import nn

from braid._bench.ddp import gradient_values
from braid._bench.ddp.models import Layer, Model
from braid._bench.ddp.step_compute import Compute, NoCompute


class TrainingStep(nn.Module):  # type: ignore[misc]
    """A model's parameters, in its order; one call and its backward are a training step without an optimizer.

    What the parameters hold is their gradient: nobody else reads them, and a second copy of a model would cost
    as much memory again. Tables with sparse gradients hold nothing, and their gradients are made anew each time.

    Args:
        model: what to stand in for.
        rank: whose gradients to bring.
        batch: samples of a step; only the number of looked-up rows depends on it.

    Attributes:
        compute: the work of a step; none at first.
    """

    def __init__(self, model: Model, rank: int, batch: int) -> None:
        super().__init__()
        self.compute: Compute = NoCompute()
        self._model, self._rank, self._batch = model, rank, batch
        holders = [_holder(layer) for layer in model.layers]
        for layer, holder in zip(model.layers, holders, strict=True):
            self.add_module(layer.name.replace(".", "_"), holder)
        self._leaves = [list(holder.parameters()) for holder in holders]
        self._first = [sum(map(len, self._leaves[:layer])) for layer in range(len(holders))]
        self._looked_up: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by layer: rows, their gradients
        with torch.no_grad():
            self._make_gradients()

    def forward(self) -> torch.Tensor:
        """Do the forward of all layers. Call backward() of what is returned, which is one number."""
        self.compute.start()
        x = torch.zeros(1, dtype=torch.float32, requires_grad=True)
        for layer, leaves in enumerate(self._leaves):
            x = _Pass.apply(x, self, layer, *leaves)
        return x

    def weights(self) -> list[torch.Tensor | None]:
        """Return the weight of each layer; None where it has no parameters."""
        return [leaves[0] if leaves else None for leaves in self._leaves]

    def gradients(self, layer: int) -> list[torch.Tensor]:
        """Return this rank's gradients of a layer's parameters. Sparse ones may be written to, others not."""
        if layer in self._looked_up:
            rows, values = self._looked_up[layer]
            shape = self._leaves[layer][0].shape
            # DistributedDataParallel divides it in place.
            return [torch.sparse_coo_tensor(rows[None], values.clone(), shape, check_invariants=False)]
        return [leaf.detach() for leaf in self._leaves[layer]]

    def count_wrong(self, size: int) -> int:
        """Count the elements of all gradients that are not the average over `size` ranks."""
        wrong = 0
        for layer, leaves in enumerate(self._leaves):
            for number, leaf in enumerate(leaves, self._first[layer]):
                if layer in self._looked_up:
                    samples = len(self._looked_up[layer][0])
                    wrong += gradient_values.count_wrong_rows(leaf.grad, leaf, number, size, samples)
                else:
                    wrong += gradient_values.count_wrong(leaf.grad, leaf.detach(), number, size)
        return wrong

    def _make_gradients(self) -> None:
        for layer, leaves in enumerate(self._leaves):
            for number, leaf in enumerate(leaves, self._first[layer]):
                if samples := self._batch * self._model.layers[layer].rows_per_sample:
                    count, width = leaf.shape
                    rows = gradient_values.rows(count, samples, number, self._rank)
                    self._looked_up[layer] = (
                        rows,
                        gradient_values.row_values(samples, width, number, self._rank),
                    )
                else:
                    gradient_values.fill(leaf, number, self._rank)


class _Pass(torch.autograd.Function):  # type: ignore[misc]
    """One layer: its backward is what makes the gradients of its parameters ready, all at once."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, step: TrainingStep, layer: int, *leaves: torch.Tensor) -> torch.Tensor:
        ctx.step, ctx.layer = step, layer
        step.compute.forward(layer)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.step.compute.backward(ctx.layer)
        return gradients[0], None, None, *ctx.step.gradients(ctx.layer)


def _holder(layer: Layer) -> nn.Module:
    if layer.rows_per_sample:
        shape = layer.parameters[0].shape
        # DistributedDataParallel expects sparse gradients of this class.
        return nn.EmbeddingBag(*shape, sparse=True, _weight=torch.empty(shape, dtype=torch.float32))
    holder = nn.Module()
    for parameter in layer.parameters:
        name = parameter.name.removeprefix(f"{layer.name}.").replace(".", "_")
        holder.register_parameter(name, nn.Parameter(torch.empty(parameter.shape, dtype=torch.float32)))
    return holder

# SPDX-License-Identifier: Apache-2.0
"""What a worker finds out by itself before elastic averaging begins: do model and optimizer fit?"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn

from braid._array.servers.terms import Vector
from braid.strategies import attachment
from braid.strategies.buffers import Buffers, buffers_of
from braid.strategies.elastic.options import ElasticOptions
from braid.strategies.packing import Entry, Packing, pack_parameters
from braid.strategies.preparation import refuse_wrapped, release, take

KIND = "elastic_average"


@dataclass
class ElasticPrepared:
    """What elastic averaging works on. `frozen` are the parameters that it leaves out."""

    packing: Packing
    frozen: list[Entry]
    buffers: Buffers | None

    @property
    def buffer_packing(self) -> Packing:
        """The float buffers that workers share; none with buffers="local"."""
        return self.buffers.packing if self.buffers else Packing([])

    def describe(self, options: ElasticOptions) -> list[str]:
        """Return what all workers must have in common, one line each."""
        lines = [f"strategy {KIND}", *options.describe()]
        lines += [f"parameter {line}" for line in self.packing.describe()]
        return lines + [f"buffer {line}" for line in self.buffer_packing.describe()]

    def vectors(self, options: ElasticOptions) -> list[Vector]:
        """Return what servers without a rank are asked to hold."""
        found = [Vector("parameters", self.packing.elements, "elastic", options.mode)]
        return found + ([Vector("buffers", self.buffer_packing.elements, "add")] if self.buffers else [])

    def release(self) -> None:
        """Forget that a strategy has these parameters."""
        release(self.packing)


def prepare_elastic(model: nn.Module, optimizer: Any, options: ElasticOptions) -> ElasticPrepared:
    """Read a model and its optimizer, and note that a strategy has the parameters.

    Raises:
        TypeError, ValueError: something does not fit; the message is one sentence.
    """
    refuse_wrapped(model)
    for name, module in model.named_modules():
        if type(module).__name__ == "FullyShardedDataParallel":
            raise ValueError(
                f"{name or 'the model'} is in FullyShardedDataParallel: a strategy needs whole parameters"
            )
    attachment.refuse(optimizer)
    packing, frozen = pack_parameters(model, optimizer.param_groups)
    _refuse_others(model, [*packing.entries, *frozen])
    prepared = ElasticPrepared(packing, frozen, buffers_of(model, options.buffers))
    take(packing)
    return prepared


def _refuse_others(model: nn.Module, entries: Iterable[Entry]) -> None:
    """Raise ValueError if the optimizer lacks a trained parameter: then another one has it."""
    own = {id(entry.tensor) for entry in entries}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in own:
            raise ValueError(
                f"{name} is trained, but is not in the optimizer: a strategy needs one optimizer for the whole "
                "module; give the part that it trains"
            )

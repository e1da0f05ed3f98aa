# SPDX-License-Identifier: Apache-2.0
"""What a worker finds out by itself before a strategy attaches to its optimizer: do model and optimizer fit?"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from braid.strategies import attachment
from braid.strategies.buffers import Buffers, buffers_of
from braid.strategies.packing import Entry, Packing, pack_parameters
from braid.strategies.preparation import refuse_wrapped, release, take


@dataclass
class Attachable:
    """What a strategy works on that attaches to an optimizer. `frozen` are the parameters that it leaves out."""

    packing: Packing
    frozen: list[Entry]
    buffers: Buffers | None

    @property
    def buffer_packing(self) -> Packing:
        """The float buffers that workers share; none with buffers="local"."""
        return self.buffers.packing if self.buffers else Packing([])

    @property
    def tensors(self) -> list[Tensor]:
        """The parameters, then the float buffers that workers share."""
        return self.packing.tensors + self.buffer_packing.tensors

    def describe_tensors(self) -> list[str]:
        """Return which tensors all workers must have in common, one line each."""
        lines = [f"parameter {line}" for line in self.packing.describe()]
        return lines + [f"buffer {line}" for line in self.buffer_packing.describe()]

    def release(self) -> None:
        """Forget that a strategy has these parameters."""
        release(self.packing)


def prepare_attachable(
    model: nn.Module, optimizer: Any, buffers: str
) -> tuple[Packing, list[Entry], Buffers | None]:
    """Read a model and its optimizer, note that a strategy has the parameters, and return what an Attachable has.

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
    shared = buffers_of(model, buffers)
    take(packing)
    return packing, frozen, shared


def _refuse_others(model: nn.Module, entries: Iterable[Entry]) -> None:
    """Raise ValueError if the optimizer lacks a trained parameter: then another one has it."""
    own = {id(entry.tensor) for entry in entries}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in own:
            raise ValueError(
                f"{name} is trained, but is not in the optimizer: a strategy needs one optimizer for the whole "
                "module; give the part that it trains"
            )

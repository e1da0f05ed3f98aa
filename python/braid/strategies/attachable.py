# SPDX-License-Identifier: Apache-2.0
"""What a worker finds out by itself before a strategy attaches to its optimizer: do model and optimizer fit?"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from braid.strategies import attachment
from braid.strategies.buffers import Buffers, buffers_of
from braid.strategies.model_state import ModelState, read_model, refuse_others
from braid.strategies.packing import Packing
from braid.strategies.preparation import refuse_wrapped, release, take


@dataclass
class Attachable:
    """What a strategy works on that attaches to an optimizer. `buffers` is None where they stay each worker's."""

    state: ModelState
    buffers: Buffers | None

    @property
    def packing(self) -> Packing:
        """The trained parameters."""
        return self.state.parameters

    @property
    def buffer_packing(self) -> Packing:
        """The float buffers that workers share; none with buffers="local"."""
        return self.state.averages

    @property
    def tensors(self) -> list[Tensor]:
        """The parameters, then the float buffers that workers share, as the model has them now."""
        return self.packing.tensors + self.buffer_packing.tensors

    def release(self) -> None:
        """Forget that a strategy has these parameters."""
        release(self.packing)


def prepare_attachable(
    model: nn.Module, optimizer: Any, buffers: str, *, init_sync: bool
) -> tuple[ModelState, Buffers | None]:
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
    state = read_model(model, optimizer.param_groups, buffers=buffers, init_sync=init_sync)
    refuse_others(model, optimizer.param_groups)
    take(state.parameters)
    return state, buffers_of(state.averages, buffers)

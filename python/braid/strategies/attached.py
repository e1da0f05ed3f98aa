# SPDX-License-Identifier: Apache-2.0
"""What a worker finds out by itself before a strategy attaches to its optimizer: do model and optimizer fit?"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from braid.strategies import attachment
from braid.strategies.packing import Entry, Packing, pack_parameters
from braid.strategies.preparation import refuse_wrapped


def read_attached(model: nn.Module, optimizer: Any) -> tuple[Packing, list[Entry]]:
    """Return the packing of all trained parameters, and the frozen parameters, which are left out.

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
    return packing, frozen


def count_parameters(optimizer: torch.optim.Optimizer) -> int:
    """Return how many parameters an optimizer has: they are fixed while a strategy is attached."""
    return sum(len(group["params"]) for group in optimizer.param_groups)


def _refuse_others(model: nn.Module, entries: Iterable[Entry]) -> None:
    """Raise ValueError if the optimizer lacks a trained parameter: then another one has it."""
    own = {id(entry.tensor) for entry in entries}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in own:
            raise ValueError(
                f"{name} is trained, but is not in the optimizer: a strategy needs one optimizer for the whole "
                "module; give the part that it trains"
            )

# SPDX-License-Identifier: Apache-2.0
"""What a worker finds out by itself before gossip begins: do model and optimizer fit?"""

from dataclasses import dataclass
from typing import Any

from torch import nn

from braid.strategies.attached import read_attached
from braid.strategies.buffers import Buffers
from braid.strategies.gossip.options import GossipOptions
from braid.strategies.packing import Entry, Packing
from braid.strategies.preparation import release, take

KIND = "gossip"


@dataclass
class GossipPrepared:
    """What gossip works on. `packing` has the parameters and then the buffers; `frozen` are left out."""

    packing: Packing
    parameters: Packing
    frozen: list[Entry]
    buffers: Buffers | None

    def describe(self, options: GossipOptions) -> list[str]:
        """Return what all workers must have in common, one line each."""
        return [f"strategy {KIND}", *options.describe(), *self.contents()]

    def contents(self) -> list[str]:
        """Return one line for each part of the vector."""
        lines = [f"parameter {line}" for line in self.parameters.describe()]
        return lines + [f"buffer {line}" for line in (self.buffers.packing.describe() if self.buffers else [])]

    def release(self) -> None:
        """Forget that a strategy has these parameters."""
        release(self.parameters)


def prepare_gossip(model: nn.Module, optimizer: Any, options: GossipOptions) -> GossipPrepared:
    """Read a model and its optimizer, and note that a strategy has the parameters.

    Raises:
        TypeError, ValueError: something does not fit; the message is one sentence.
    """
    parameters, frozen = read_attached(model, optimizer)
    buffers = Buffers(model) if options.buffers == "average" else None
    packing = Packing([*parameters.entries, *(buffers.packing.entries if buffers else [])])
    take(parameters)
    return GossipPrepared(packing, parameters, frozen, buffers)

# SPDX-License-Identifier: Apache-2.0
"""What a worker finds out by itself before elastic averaging begins: do model and optimizer fit?"""

from dataclasses import dataclass
from typing import Any

from torch import nn

from braid._array.servers.terms import Vector
from braid.strategies.attached import read_attached
from braid.strategies.buffers import Buffers
from braid.strategies.elastic.options import ElasticOptions
from braid.strategies.packing import Entry, Packing
from braid.strategies.preparation import release, take

KIND = "elastic_average"


@dataclass
class ElasticPrepared:
    """What elastic averaging works on. `frozen` are the parameters that it leaves out."""

    packing: Packing
    frozen: list[Entry]
    buffers: Buffers | None

    @property
    def buffer_packing(self) -> Packing:
        """The float buffers that are averaged; none with buffers="local"."""
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
    packing, frozen = read_attached(model, optimizer)
    prepared = ElasticPrepared(packing, frozen, Buffers(model) if options.buffers == "average" else None)
    take(packing)
    return prepared

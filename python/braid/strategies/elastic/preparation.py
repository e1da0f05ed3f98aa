# SPDX-License-Identifier: Apache-2.0
"""What a worker finds out by itself before elastic averaging begins: do model and optimizer fit?"""

from typing import Any

from torch import nn

from braid._array.servers.terms import Vector
from braid.strategies.attachable import Attachable, prepare_attachable
from braid.strategies.averages import RULE
from braid.strategies.elastic.options import ElasticOptions

KIND = "elastic_average"


class ElasticPrepared(Attachable):
    """What elastic averaging works on."""

    def describe(self, options: ElasticOptions) -> list[str]:
        """Return what all workers must have in common, one line each."""
        return [f"strategy {KIND}", *options.describe(), *self.state.describe()]

    def vectors(self, options: ElasticOptions) -> list[Vector]:
        """Return what servers without a rank are asked to hold."""
        found = [Vector("parameters", self.packing.elements, "elastic", options.mode)]
        return found + ([Vector("buffers", self.buffer_packing.elements, RULE)] if self.buffers else [])


def prepare_elastic(model: nn.Module, optimizer: Any, options: ElasticOptions) -> ElasticPrepared:
    """Read a model and its optimizer, and note that a strategy has the parameters.

    Raises:
        TypeError, ValueError: something does not fit; the message is one sentence.
    """
    return ElasticPrepared(*prepare_attachable(model, optimizer, options.buffers, init_sync=options.init_sync))

# SPDX-License-Identifier: Apache-2.0
"""What a worker finds out by itself before local steps begin: do model, optimizer and outer optimizer fit?"""

from dataclasses import dataclass
from typing import Any

from torch import nn

from braid._array.parameters import codec_of
from braid._array.servers.terms import Vector
from braid.strategies.attachable import Attachable, prepare_attachable
from braid.strategies.averages import RULE
from braid.strategies.local.fragments import sizes
from braid.strategies.local.options import LocalOptions
from braid.strategies.local.outer import OuterFactory, describe
from braid.strategies.preparation import release

MOST_SPEEDS = 1024  # workers whose speed servers know


@dataclass
class LocalPrepared(Attachable):
    """What local steps work on.

    Attributes:
        kind: the name of the strategy.
        outer: makes the outer optimizer. None: the centre becomes the workers' mean.
    """

    kind: str
    outer: OuterFactory | None

    def describe(self, options: LocalOptions) -> list[str]:
        """Return what all workers must have in common, one line each."""
        return [f"strategy {self.kind}", *options.describe(), describe(self.outer), *self.state.describe()]

    def vectors(self, options: LocalOptions, rule: str) -> list[Vector]:
        """Return what servers without a rank are asked to hold; `rule`: how they move the centre."""
        codec = codec_of(options.compression)
        found = [
            Vector(part, elements, rule, options.mode, codec, codec)
            for part, elements in zip(
                options.parts, sizes(self.packing.elements, options.num_fragments), strict=True
            )
        ]
        if options.follow_speed:
            found.append(Vector("speeds", MOST_SPEEDS, "add"))
        return found + ([Vector("buffers", self.buffer_packing.elements, RULE)] if self.buffers else [])


def prepare_local(
    model: nn.Module, optimizer: Any, options: LocalOptions, kind: str, outer: OuterFactory | None
) -> LocalPrepared:
    """Read a model and its optimizer, and note that a strategy has the parameters.

    Raises:
        TypeError, ValueError: something does not fit; the message is one sentence.
    """
    describe(outer)  # before anything is noted
    state, buffers = prepare_attachable(model, optimizer, options.buffers, init_sync=options.init_sync)
    packing = state.parameters
    if options.num_fragments > packing.elements:
        release(packing)
        raise ValueError(
            f"num_fragments={options.num_fragments}: the model has only {packing.elements} trained parameters"
        )
    return LocalPrepared(state, buffers, kind, outer)

# SPDX-License-Identifier: Apache-2.0
"""What a worker finds out by itself before gossip begins: do model and optimizer fit?"""

from typing import Any

from torch import nn

from braid.strategies.attachable import Attachable, prepare_attachable
from braid.strategies.gossip.options import GossipOptions
from braid.strategies.packing import Packing

KIND = "gossip"


class GossipPrepared(Attachable):
    """What gossip works on."""

    @property
    def together(self) -> Packing:
        """The parameters and then the buffers: what workers average."""
        return Packing([*self.packing.entries, *self.buffer_packing.entries])

    def describe(self, options: GossipOptions) -> list[str]:
        """Return what all workers must have in common, one line each."""
        return [f"strategy {KIND}", *options.describe(), *self.state.describe()]


def prepare_gossip(model: nn.Module, optimizer: Any, options: GossipOptions) -> GossipPrepared:
    """Read a model and its optimizer, and note that a strategy has the parameters.

    Raises:
        TypeError, ValueError: something does not fit; the message is one sentence.
    """
    return GossipPrepared(*prepare_attachable(model, optimizer, options.buffers, init_sync=options.init_sync))

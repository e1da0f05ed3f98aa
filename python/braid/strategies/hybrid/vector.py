# SPDX-License-Identifier: Apache-2.0
"""The vector that a group adds up in each round: gradient, float buffers, and how many members do what."""

from dataclasses import dataclass
from enum import Enum, auto

import torch
from torch import Tensor

from braid.strategies.averages import merged
from braid.strategies.preparation import Prepared
from braid.strategies.rules import Groups, LocalRule, write_gradients


@dataclass(frozen=True)
class Signs:
    """How many members take a step, of these skip it, only look at the servers' values, or have finished."""

    steps: int = 0
    skips: int = 0
    looks: int = 0
    done: int = 0


class Taking(Enum):
    """What a member does with float buffers that are not broadcast when the speaker's values come."""

    REPLACE = auto()  # it takes the speaker's
    MERGE = auto()  # it takes the servers', and what it has changed since the last mean; see averages.py
    KEEP = auto()  # it has the right ones


class GroupVector:
    """One member's part of a round, and then the sum of all parts. The speaker's values come back in it, too.

    Attributes:
        whole: what travels: gradient, buffers, four signs.
        update: the part of the gradient.
    """

    def __init__(self, prepared: Prepared) -> None:
        """Allocate the vector: the only copy of the parameters that a member has beside the model."""
        self._prepared = prepared
        packings = [prepared.packing, prepared.state.averages]
        sizes = [packing.elements for packing in packings]
        self.whole = torch.zeros(sum(sizes) + len(vars(Signs())), dtype=torch.float32)
        self.update, of_buffers, self._signs = self.whole.split([*sizes, len(vars(Signs()))])
        self._is_broadcast = prepared.buffers is not None and prepared.buffers.is_broadcast
        self._gradients = prepared.packing.views(self.update)
        self._buffers = packings[1].views(of_buffers)
        # Buffers when all members had the same ones. What has changed since is a member's own.
        self._base = torch.zeros(sizes[1], dtype=torch.float32)
        self._bases = packings[1].views(self._base)

    def write_step(self, groups: Groups, scale: float) -> None:
        """Write this member's gradients, times `scale`, and its buffers."""
        if isinstance(self._prepared.rule, LocalRule):
            write_gradients(self._prepared.packing, self._gradients, scale)
        else:
            self._prepared.rule.write(self._gradients, scale, groups)
        if self._floats and self._is_broadcast:
            torch._foreach_zero_(self._buffers)
        elif self._floats:
            torch._foreach_copy_(self._buffers, self._floats)
        self._write_signs(Signs(steps=1))

    def write_nothing(self, signs: Signs) -> None:
        """Write zeros, and say why."""
        self.whole.zero_()
        self._write_signs(signs)

    def signs(self) -> Signs:
        """Return how many members do what, after the sum."""
        return Signs(*map(int, self._signs.tolist()))

    def take_mean(self, steps: int, groups: Groups) -> None:
        """Turn the sum into the update of the mean gradient. Buffers become the mean of the members' buffers.

        Buffers that are broadcast stay: the speaker's come with its values.
        """
        self.whole.div_(steps)
        if self._floats and not self._is_broadcast:
            torch._foreach_copy_(self._floats, self._buffers)
            torch._foreach_copy_(self._bases, self._floats)
        if not isinstance(self._prepared.rule, LocalRule):
            return
        # All members step, so that all keep the same state of their optimizers.
        for entry, mean in zip(self._prepared.packing.entries, self._gradients, strict=True):
            if entry.tensor.grad is None or entry.tensor.grad.is_sparse:
                entry.tensor.grad = torch.empty_like(entry.tensor)
            entry.tensor.grad.copy_(mean)
        self._prepared.rule.write(self._gradients, 1.0, groups)

    def write_values(self, taking: Taking, *, is_good: bool) -> None:
        """Write the speaker's values, and whether they are good. `taking`: what members do with the buffers."""
        torch._foreach_copy_(self._gradients, self._prepared.packing.tensors)
        if self._floats:
            is_merged = taking is Taking.MERGE and is_good
            torch._foreach_copy_(self._buffers, self._arrived() if is_merged else self._floats)
        self._signs[0] = float(is_good)

    def take_values(self, taking: Taking) -> bool:
        """Take the speaker's values. Return whether they are good."""
        if not self._signs[0]:
            return False
        torch._foreach_copy_(self._prepared.packing.tensors, self._gradients)
        if self._is_broadcast:
            taking = Taking.REPLACE
        if taking is Taking.KEEP:
            return True
        for buffer, base, value in zip(self._floats, self._bases, self._buffers, strict=True):
            buffer.copy_(merged(buffer.float(), base, value) if taking is Taking.MERGE else value)
            base.copy_(buffer)
        return True

    @property
    def _floats(self) -> list[Tensor]:
        return self._prepared.state.averages.tensors

    def _arrived(self) -> list[Tensor]:
        assert self._prepared.buffers is not None
        return self._floats if self._is_broadcast else self._prepared.buffers.arrived

    def _write_signs(self, signs: Signs) -> None:
        self._signs.copy_(torch.tensor([float(value) for value in vars(signs).values()], dtype=torch.float32))

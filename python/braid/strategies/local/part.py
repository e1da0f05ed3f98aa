# SPDX-License-Identifier: Apache-2.0
"""A part of the centre that is exchanged in one round: a fragment, or all of it."""

from collections.abc import Callable

import torch
from torch import Tensor

from braid.strategies.averages import merged
from braid.strategies.local.fragments import Fragment
from braid.strategies.local.messages import Message
from braid.strategies.local.outer import Outer, OuterFactory
from braid.strategies.rounds.rounds import Said


class Part:
    """A range of the model, the same range of the centre, and how the centre follows the workers.

    Attributes:
        centre: float32; a view of the centre's vector.
        message: what travels.
        outer: the outer optimizer. None: the centre becomes the mean of the workers.
        is_dirty: whether this worker's values may differ from the centre.
    """

    def __init__(
        self,
        fragment: Fragment,
        centre: Tensor,
        message: Message,
        factory: OuterFactory | None,
        parameters: int,
    ) -> None:
        """Take a range of the centre. `parameters`: how many elements of the whole vector are parameters."""
        self.fragment, self.message = fragment, message
        self.centre = centre[fragment.begin : fragment.end]
        self._parameters = max(0, min(fragment.end, parameters) - fragment.begin)
        self.outer: Outer | None = None
        if factory is not None and self._parameters:
            self.outer = Outer(factory, self._of_parameters(self.centre))
        self.is_dirty = False

    def bring(self) -> None:
        """Write into the message how far this worker has moved from the centre."""
        self.fragment.read(self.message.vector)
        self.message.vector.sub_(self.fragment.shown(self.centre))

    def meet(self, *, takes_part: bool) -> Said:
        """Make the round; on the thread of the rounds."""
        return self.message.meet(takes_part=takes_part)

    def move(self, *, took_part: bool, keep: float) -> None:
        """Move the centre by the mean in the message, and this worker to the centre.

        Args:
            took_part: whether this worker brought something. Else it keeps its distance from the centre.
            keep: which part of its distance from the centre a worker keeps that took part.
        """
        if took_part:
            self.move_centre()
            self.show(keep)
        else:
            self.shift(self.move_centre)

    def shift(self, change: Callable[[], None], before: Tensor | None = None) -> None:
        """Let `change` move the centre, and this worker with it: it keeps its distance from the centre.

        Buffers do so within their range: see averages.py.

        Args:
            change: moves the centre.
            before: from where the distance is measured; shape (elements,). By default it is the centre as it was.
        """
        if before is None and self.is_dirty:
            before = self.fragment.shown(self.centre).clone()
        change()
        if before is None:
            self.show()
            return
        own = torch.empty_like(self.centre)
        self.fragment.read(own)
        of_buffers = slice(self._parameters, None)
        averages = merged(own[of_buffers], before[of_buffers], self.centre[of_buffers])
        own.sub_(before).add_(self.centre)
        own[of_buffers] = averages
        self.fragment.write(own)

    def move_centre(self) -> None:
        """Move the centre by the mean in the message."""
        moved = self.message.vector
        if self.outer is None:
            self.centre.add_(moved[: self.fragment.elements])
            return
        self.outer.step(self._of_parameters(moved))
        self.centre[self._parameters :].add_(moved[self._parameters : self.fragment.elements])

    def show(self, keep: float = 0.0) -> None:
        """Give the model the centre's values, or move it there in part."""
        if not keep:
            self.fragment.write(self.centre)
        else:
            own = torch.empty_like(self.centre)
            self.fragment.read(own)
            self.fragment.write(own.lerp_(self.centre, 1 - keep))
        self.is_dirty = keep > 0

    def _of_parameters(self, vector: Tensor) -> list[Tensor]:
        """Return the views of a vector that belong to parameters; what follows them is of buffers."""
        found, place = [], 0
        for view in self.fragment.views(vector):
            if place < self._parameters:
                found.append(view)
            place += view.numel()
        return found

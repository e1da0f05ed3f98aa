# SPDX-License-Identifier: Apache-2.0
"""Watches the centre of a training: has it moved at all, and does it run away?"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from braid._notices import tell

# Parameters of trainings that went well grew to 1.5 to 3 times their first norm; of one that ran away, to 20.
# Between them lies AdamW with a rate of 0.01 and the paper's outer momentum: 13 times, accuracy 94.7 %. It is
# told, too, so the line only says what to do if the loss rises.
RUNAWAY = 5.0


class CentreWatch:
    """Compares parameters with the first ones by their norms, and tells of each finding once."""

    def __init__(self, strategy: str, parameters: Sequence[Tensor]) -> None:
        """Note the first values. `strategy`: its name, for what is told."""
        self._strategy = strategy
        self._first = _norms(parameters)
        self._has_moved = False  # the centre, for sure
        self._told: set[str] = set()

    def shown(self, centre: Sequence[Tensor], own: Sequence[Tensor], steps: int) -> None:
        """The script looks at the centre; tell if it is the first one, though this worker's own values have moved.

        Args:
            centre: parameters with the centre's values.
            own: parameters with this worker's values.
            steps: that this worker has taken.
        """
        if not steps or self._has_moved:
            return
        self._has_moved = _norms(centre) != self._first
        if not self._has_moved and _norms(own) != self._first:
            self._tell(
                "first",
                f"centre() shows the values that this worker began with: after {steps} steps no exchange has "
                "reached the centre. With a smaller sync_every they come earlier; a script that has made the "
                "strategy itself can call settle() first",
            )

    def moved(self, parameters: Sequence[Tensor], rounds: int) -> None:
        """An outer optimizer has moved the centre to these values; tell if it runs away.

        Args:
            parameters: of the model, right after the exchange.
            rounds: that are over.
        """
        length, first = math.hypot(*_norms(parameters)), math.hypot(*self._first)
        if not math.isfinite(length):
            self._tell("infinite", f"after {rounds} rounds the parameters are not finite: NaN, or an infinity")
        elif first and length > RUNAWAY * first:
            self._tell(
                "long",
                f"after {rounds} rounds the norm of the parameters is {length / first:.0f} times the first one. "
                "If the loss rises, the outer steps are too long: give a smaller outer_momentum=, or outer_lr=",
            )

    def _tell(self, finding: str, line: str) -> None:
        if finding not in self._told:
            self._told.add(finding)
            tell(f"strategy {self._strategy}: {line}")


def _norms(parameters: Sequence[Tensor]) -> list[float]:
    with torch.no_grad():
        found = [each for each in parameters if each.numel()]
        return [float(norm) for norm in torch._foreach_norm(found)] if found else []

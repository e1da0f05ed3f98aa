# SPDX-License-Identifier: Apache-2.0
"""Bounds how long a worker trains alone: a step waits for an exchange where the last one is too long ago."""

import time

from braid._notices import tell
from braid.strategies.gossip.engine import Engine
from braid.strategies.gossip.local import Local

_LONG_S = 1.0  # a first wait of so long is told


class Company:
    """Counts the steps since the last exchange, which this worker or another one has begun.

    Attributes:
        waits, waited_s: how often a step has waited for an exchange, and for how long altogether.
    """

    def __init__(self, engine: Engine, local: Local, most_steps: int) -> None:
        """Count from now on.

        Args:
            engine: makes the exchanges.
            local: knows of those that others have begun.
            most_steps: that a worker may take alone; 0: any number.
        """
        self._engine, self._local, self._most_steps = engine, local, most_steps
        self._met, self._met_at = self._meetings(), 0
        self.waits, self.waited_s = 0, 0.0
        self._has_told = False

    def begin(self, steps: int) -> None:
        """Count anew, from this number of steps."""
        self._met, self._met_at = self._meetings(), steps

    def keep(self, steps: int) -> bool:
        """Wait for an exchange if it is time; return whether it was. Call it after Local.sync().

        A worker that waits begins an exchange itself, so no other one has to take a step for it. Each try lasts as
        long as the strategy's timeout at most. Where nobody lives there is nobody to wait for.

        Raises:
            CommunicatorError: this worker cannot go on.
        """
        if self._meetings() != self._met:
            self.begin(steps)
        alone = steps - self._met_at
        if not self._most_steps or alone < self._most_steps or not self._engine.has_neighbours():
            return False
        begun = time.perf_counter()
        self._engine.wait()
        lost = -1
        while self._meetings() == self._met and lost != self._engine.lost:
            lost = self._engine.lost  # as long as a try loses a worker, another one may be there
            self._engine.meet_now()
        waited_s = time.perf_counter() - begun
        self.waits += 1
        self.waited_s += waited_s
        self.begin(steps)
        if waited_s >= _LONG_S and not self._has_told:
            self._has_told = True
            tell(
                f"gossip: a step has waited {waited_s:.1f} s for an exchange, because the last one was {alone} "
                f"steps ago: max_steps_alone={self._most_steps}"
            )
        return True

    def _meetings(self) -> int:
        return self._engine.met + self._local.from_others

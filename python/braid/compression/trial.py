# SPDX-License-Identifier: Apache-2.0
"""Times steps with and without the codecs that "auto" chose, in turns, to see which are faster.

Predictions cover operations only. The time of a step also depends on the processors' other work, and on the work
of the script between operations. With fast links that other work decides.
"""

import time
from collections.abc import Callable
from statistics import median

_TURN = 4  # steps in a row with, or without; the first is not timed: caches hold the other way's memory
_SURE = 0.5  # a predicted gain of more than this part of a step needs no trial
_LEAST = 0.98  # codecs stay if a step with them takes less than this part of a step without
_VERDICTS = (None, True, False)
_WARM = 3  # a step's time is known after this many timed warm-up steps


class Trial:
    """Decides for each step whether it uses the codecs that were chosen by prediction. All ranks decide alike.

    The first step uses the codecs. The trial ends there if they are predicted to save more than half of a step, or
    if no codec was chosen. Otherwise turns of 4 steps follow, with and without codecs. Then rank 0's times decide.
    """

    def __init__(self, steps: int, verdict: bool | None = None) -> None:
        """Begin a trial of this many steps, or take over an earlier verdict. With 0 steps codecs are used."""
        self.verdict = verdict if steps else True
        self.was_found = steps > 0 and verdict is not None
        self.reason = "slower with a codec than without, as far as was tried"
        self._steps = steps
        self._made = 0  # since the warm-up
        self._began: float | None = None
        self._warm_s: list[float] = []
        self._step_s: dict[bool, list[float]] = {True: [], False: []}

    @property
    def uses_codecs(self) -> bool:
        """Whether the step that has begun uses the codecs."""
        if self.verdict is not None:
            return self.verdict
        return self._made <= 1 or (self._made - 2) // _TURN % 2 == 0

    @property
    def finding(self) -> bool | None:
        """The verdict that a trial found; None if no trial has ended."""
        return self.verdict if self.was_found else None

    def settle(self, most_of: Callable[[int], int]) -> None:
        """Take over the verdict of any rank that has one. `most_of` returns the largest number of all ranks."""
        if self._steps:
            self.verdict = _VERDICTS[most_of(_VERDICTS.index(self.verdict))]
            self.was_found = self.verdict is not None

    def begin_step(
        self, is_warm_up: bool, gain_s: Callable[[], float | None], agree: Callable[[int], int]
    ) -> bool:
        """Begin a step. Return true if the verdict was found just now.

        Args:
            is_warm_up: all gradients are exact in this step.
            gain_s: returns the seconds that codecs are predicted to save in a step; None if no codec was chosen.
                Called once.
            agree: gives all ranks the choice of the same rank.
        """
        if self.verdict is not None:
            return False
        took_s, self._began = self._lap()
        if is_warm_up:
            self._warm_s += took_s
            return False
        if self._made >= 2 and (self._made - 2) % _TURN != 0:
            self._step_s[self.uses_codecs] += took_s
        self._made += 1
        if self._made == 2:
            self._look_ahead(gain_s(), agree)
        elif self._made == self._steps + 2:
            self._end(agree)
        return self.verdict is not None

    def _lap(self) -> tuple[list[float], float]:
        now = time.perf_counter()
        return ([] if self._began is None else [now - self._began]), now

    def _look_ahead(self, gain_s: float | None, agree: Callable[[int], int]) -> None:
        if gain_s is None:
            self.verdict = True
            return
        is_sure = len(self._warm_s) >= _WARM and gain_s > _SURE * median(self._warm_s[-2 * _WARM :])
        if agree(is_sure):
            self.verdict = self.was_found = True

    def _end(self, agree: Callable[[int], int]) -> None:
        with_s, without_s = self._step_s[True], self._step_s[False]
        pays = not with_s or not without_s or median(with_s) < _LEAST * median(without_s)
        if not pays:
            self.reason = (
                f"steps took {median(with_s) * 1e3:.3g} ms with a codec, {median(without_s) * 1e3:.3g} without"
            )
        self.verdict, self.was_found = bool(agree(pays)), True

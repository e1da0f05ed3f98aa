# SPDX-License-Identifier: Apache-2.0
"""Whether what `auto` chose pays: steps with it and without, in turns, timed.

Predictions know operations. What a step takes also depends on what else the processors have to do meanwhile, and
on what a script does between its operations; where links are fast that decides.
"""

import time
from collections.abc import Callable
from statistics import median

_TURN = 4  # steps of one way in a row, of which the first is left out: caches have the other one's memory
_SURE = 0.5  # of a step: a predicted gain of so much needs no proof
_LEAST = 0.98  # of a step's time without it is what a step with it may take at most
_VERDICTS = (None, True, False)
_WARM = 3  # steps of the warm-up that are enough to tell how long one takes


class Trial:
    """Tells for each step whether codecs that were chosen by prediction are used in it. All ranks tell alike.

    The first step uses them. Where they are predicted to save half of a step, or there are none, that is all.
    Otherwise turns of 4 steps follow, with them and without, and then what the first rank found to be faster.
    """

    def __init__(self, steps: int, verdict: bool | None = None) -> None:
        """Begin a trial of so many steps, or take over the verdict of an earlier one; for 0 codecs are used."""
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
        """Whether they are used in the step that has begun."""
        if self.verdict is not None:
            return self.verdict
        return self._made <= 1 or (self._made - 2) // _TURN % 2 == 0

    @property
    def finding(self) -> bool | None:
        """The verdict, if there was anything to find out."""
        return self.verdict if self.was_found else None

    def settle(self, most_of: Callable[[int], int]) -> None:
        """Take over the verdict that any rank has, given what returns the largest of all ranks' numbers."""
        if self._steps:
            self.verdict = _VERDICTS[most_of(_VERDICTS.index(self.verdict))]
            self.was_found = self.verdict is not None

    def begin_step(
        self, is_warm_up: bool, gain_s: Callable[[], float | None], agree: Callable[[int], int]
    ) -> bool:
        """Begin a step; tell whether the verdict has come.

        Args:
            is_warm_up: all is exact in it.
            gain_s: what codecs are predicted to save in a step; None where none was chosen. Asked once.
            agree: gives every rank the choice of the same one.
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

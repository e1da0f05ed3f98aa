# SPDX-License-Identifier: Apache-2.0
"""Two periods: groups meet often, all workers meet seldom (hierarchical local SGD, Lin et al. 2020)."""

from typing import Any

import torch

from braid._errors import CommunicatorError
from braid.strategies.agreement import Agreement
from braid.strategies.local.in_rounds import NAME, LocalInRounds
from braid.strategies.local.messages import Plain
from braid.strategies.local.options import LocalOptions
from braid.strategies.local.part import Part
from braid.strategies.local.preparation import LocalPrepared
from braid.strategies.rounds.rounds import own_group


class InTwoLevels(LocalInRounds):
    """Each group has a base: where its members were after their last round. Theirs are means, without outer
    optimizer.

    After a number of rounds of the group, which is the same for all groups, comes one of all workers.
    """

    _inner: Part | None = None

    def __init__(
        self,
        agreed: Agreement[LocalPrepared],
        group: Any,
        options: LocalOptions,
        timeout_s: float,
        ranks: list[int],
    ) -> None:
        """Make the process groups; `ranks` are this worker's group."""
        super().__init__(agreed, group, options, timeout_s)
        inner_group = own_group(group, f"{NAME} of a group", timeout_s, ranks)
        self._base = self.vector.clone()
        message = Plain(inner_group, self._all.elements)
        self._inner = Part(self._all, self._base, message, None, self._parameters)
        self._group_has_moved = False  # since the last round of all
        self._answers = False

    def finish(self) -> None:
        """As LocalInRounds.finish(). A worker that hears of a failure in its group tells all others of it."""
        is_inner = self._under_way is not None and self._under_way[0] is self._inner
        try:
            super().finish()
        except CommunicatorError:
            if is_inner:
                self._rounds.thread.start(self._tell_all)
            raise

    def _due(self) -> Part:
        if self.warm_left or self._inner is None or (self.turn + 1) % self._options.rounds_per_global == 0:
            return super()._due()
        return self._inner

    def _answer(self) -> int:
        part = self._due()
        if part is self._inner:
            super()._answer()
            return 1  # whether others train is said in the rounds of all
        if self.warm_left:
            return super()._answer()
        # What the group has done together counts for each member. What this one has done since comes when all end.
        part.message.vector.copy_(self._base).sub_(self.vector)
        self.turn += 1
        self._answers = True
        self._start(part, takes_part=self._group_has_moved)
        self.finish()
        self._answers = False
        return self.workers

    def _move(self, part: Part, *, took_part: bool, keep: float) -> None:
        (whole,) = self.parts
        if part is self._inner:
            part.move(took_part=took_part, keep=0.0)
            self._group_has_moved = whole.is_dirty = True
            return
        if self._answers:
            own, before = torch.empty_like(self.vector), self._all.shown(self._base).clone()
            whole.move_centre()
            self._all.read(own)
            self._all.write(own.sub_(before).add_(self.vector))
            whole.is_dirty = self._inner is not None and self._inner.is_dirty
        else:
            super()._move(part, took_part=took_part, keep=keep)
        self._start_from_centre(is_dirty=part.is_dirty)

    def _start_from_centre(self, *, is_dirty: bool) -> None:
        if self._inner is not None:
            self._base.copy_(self.vector)
            self._inner.is_dirty = is_dirty
            self._group_has_moved = False

    def _all_parts(self) -> list[Part]:
        return [*super()._all_parts(), *([self._inner] if self._inner else [])]

    def _now_equal(self) -> None:
        super()._now_equal()
        self._start_from_centre(is_dirty=False)

    def _tell_of_failure(self) -> None:
        super()._tell_of_failure()
        if self._due() is self._inner:
            self._tell_all()

    def _tell_all(self) -> None:
        self.parts[0].message.meet(takes_part=False, has_failed=True)

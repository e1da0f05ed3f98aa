# SPDX-License-Identifier: Apache-2.0
"""Two periods: groups meet often, all workers meet seldom (hierarchical local SGD, Lin et al. 2020).

With fragments all workers meet about one fragment at a time, as in streaming DiLoCo (Douillard et al. 2025).
"""

import torch
from torch import Tensor

from braid._errors import CommunicatorError
from braid.strategies.hybrid.grouping import Grouping
from braid.strategies.local.in_rounds import NAME, LocalInRounds
from braid.strategies.local.messages import Plain
from braid.strategies.local.part import Part
from braid.strategies.local.terms import Terms
from braid.strategies.rounds.rounds import own_group


class InTwoLevels(LocalInRounds):
    """Each group has a base: where its members were after their last round. Theirs are means, without outer
    optimizer.

    After a number of rounds of the group, which is the same for all groups, comes one of all workers. Without
    fragments it takes the place of a group's last round. A fragment's round comes after it, in the same step,
    because the group's round also has the other fragments.
    """

    _inner: Part | None = None

    def __init__(self, terms: Terms, groups: Grouping) -> None:
        """Make the process groups."""
        super().__init__(terms)
        ranks = terms.group_of_this_worker(groups)
        inner_group = own_group(terms.process_group, f"{NAME} of a group", self.meeting, terms.timeout_s, ranks)
        self._base = self.vector.clone()
        message = Plain(inner_group, self._all.elements)
        self._inner = Part(self._all, self._base, message, None, self._parameters)
        self._moved: set[Part] = set()  # what the group has moved since the last round of all about it
        self._answers = False
        fragments = len(self.parts)
        # Rounds from one of all workers to the next, which is the last of them.
        self._cycle = self._options.rounds_per_global // fragments + (fragments > 1)

    def step(self) -> None:
        """As LocalInRounds.step(). A fragment's round follows at once on the group's round before it."""
        super().step()
        is_round = not self.warm_left and self.clock % self._options.steps_per_round == 0
        if is_round and len(self.parts) > 1 and self._due() is not self._inner:
            self._meet()

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
        if self.warm_left or self._inner is None:
            return super()._due()
        return self._inner if (self.turn + 1) % self._cycle else self._next_of_all()

    def _next_of_all(self) -> Part:
        """Return what the next round of all workers is about."""
        return self.parts[self.turn // self._cycle % len(self.parts)]

    def _answer(self) -> int:
        part = self._due()
        if part is self._inner:
            super()._answer()
            return 1  # whether others train is said in the rounds of all
        if self.warm_left:
            return super()._answer()
        # What the group has done together counts for each member. What this one has done since comes when all end.
        torch.sub(self._base_of(part), part.centre, out=part.message.vector)
        self.turn += 1
        self._answers = True
        self._start(part, takes_part=part in self._moved)
        self.finish()
        self._answers = False
        return self.workers

    def _move(self, part: Part, *, took_part: bool, keep: float) -> None:
        if part is self._inner:
            part.move(took_part=took_part, keep=0.0)
            self._moved.update(self.parts)
            for each in self.parts:
                each.is_dirty = True
            return
        if self._answers:
            part.shift(part.move_centre, part.fragment.shown(self._base_of(part)).clone())
            part.is_dirty = self._inner is not None and self._inner.is_dirty
        else:
            super()._move(part, took_part=took_part, keep=keep)
        self._start_from_centre(part)

    def _start_from_centre(self, part: Part) -> None:
        """Let the group's base have the centre's values of a part, or of all."""
        if self._inner is None:
            return
        self._base_of(part).copy_(part.centre)
        is_all = part.fragment.elements == self._all.elements
        self._inner.is_dirty = part.is_dirty or (self._inner.is_dirty and not is_all)
        self._moved.difference_update(self.parts if is_all else [part])

    def _base_of(self, part: Part) -> Tensor:
        return self._base[part.fragment.begin : part.fragment.end]

    def _all_parts(self) -> list[Part]:
        return [*super()._all_parts(), *([self._inner] if self._inner else [])]

    def _now_equal(self) -> None:
        super()._now_equal()
        for part in self.parts:
            self._start_from_centre(part)

    def _tell_of_failure(self) -> None:
        super()._tell_of_failure()
        if self._due() is self._inner:
            self._tell_all()

    def _tell_all(self) -> None:
        self._next_of_all().message.meet(takes_part=False, has_failed=True)

# SPDX-License-Identifier: Apache-2.0
"""Local steps in rounds of all workers. All of them keep the centre, and move it alike.

A worker brings how far it has moved from the centre, so no digits are lost. The centre moves by the mean, or as
the outer optimizer says. Then the worker takes the centre's values. With fragments a round has one of them, in
turns.
"""

from collections.abc import Collection
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from braid import _services
from braid._array.parameters import OFF
from braid.strategies.local.fragments import Fragment, cut
from braid.strategies.local.messages import Coded, Message, Plain
from braid.strategies.local.outer import OuterFactory
from braid.strategies.local.part import Part
from braid.strategies.local.terms import Terms
from braid.strategies.rounds.rounds import Round, Rounds

NAME = "local steps"


class LocalInRounds:
    """Rounds every few steps, at once or beside the next steps.

    Attributes:
        rounds: how many rounds this worker has taken part in.
        workers: how many took part in the last round.
        name, member: as braid.stats() shows them.
    """

    def __init__(
        self,
        terms: Terms,
        ranks: list[int] | None = None,
    ) -> None:
        """Make the process group. Parameters and buffers become those of its first worker.

        `ranks`: only these workers meet; by default all.
        """
        self.meeting, prepared, options = terms.agreed.meeting, terms.agreed.prepared, terms.options
        self._options = options
        self._entries = [*prepared.packing.entries, *prepared.buffer_packing.entries]
        self._parameters = prepared.packing.elements
        self._rounds = Rounds(terms.process_group, NAME, self.meeting, terms.timeout_s, ranks)
        self._all = Fragment(self._entries, 0, self._parameters + prepared.buffer_packing.elements)
        self.vector = torch.zeros(self._all.elements, dtype=torch.float32)  # the centre
        self.parts = [
            self._part(fragment, self._coded(fragment.elements), prepared.outer)
            for fragment in cut(self._entries, self._parameters, options.num_fragments)
        ]
        self.warm_left = options.warmup_steps
        self._warm: Part | None = None
        self.clock = self.turn = 0  # steps, and rounds that have begun, since all were together
        self._under_way: tuple[Part, Round, bool] | None = None
        self.rounds, self.workers, self.sent_bytes = 0, self.meeting.workers, 0
        self._all.read(self.vector)
        self.share_centre()
        self.name, self.member = f"{self.meeting.name}/rounds", self.meeting.member
        _services.register(self)

    def step(self) -> None:
        """Note a step of the optimizer; begin and finish the rounds that are due."""
        for part in self._all_parts():
            part.is_dirty = True
        if self.warm_left:
            self._meet()
            return
        self.clock += 1
        every, delay = self._options.steps_per_round, self._options.fragment_sync_delay
        if self._under_way and self.clock % every == delay:
            self.finish()
        if self.clock % every == 0:
            self._begin(takes_part=True)
            if not delay:
                self.finish()

    def finish(self) -> None:
        """Wait for the round under way, if any, and move centre and model.

        Raises:
            CommunicatorError: a worker failed or died, or did not come in time.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return
        part, round_, took_part = under_way
        self.workers = round_.wait()
        self.sent_bytes += part.message.sent_bytes
        if self.workers:
            keep = 0.0 if part is self._warm else self._options.fragment_update_alpha
            self._move(part, took_part=took_part, keep=keep)
        self.rounds += took_part

    def settle(self) -> None:
        """Answer the others' rounds until all workers are here. Then all meet once more: no step is lost."""
        self.finish()
        self._rounds.answer(self._answer)
        for part in [self._due()] if self.warm_left else self.parts:
            self._begin(takes_part=part.is_dirty, part=part)
            self.finish()
            part.show()
        self.clock = self.turn = 0
        self._now_equal()

    def end_requests(self) -> None:
        """Wait for the round under way."""
        self.finish()

    def present(self) -> Collection[int]:
        """Return the workers that could change the centre alone: none."""
        return ()

    def take_centre(self) -> None:
        """Take the newest centre, once all have settled: settle() has done so."""

    def centre(self) -> list[Tensor]:
        """Return the centre after the last finished round."""
        return self._all.views(self.vector)

    def share_centre(self) -> None:
        """Give all workers the centre of worker 0, and its values to the model. No round is under way."""
        dist.broadcast(self.vector, group_src=0, group=self._rounds.group)
        self._all.write(self.vector)
        self._now_equal()

    def hear(self, value: Any) -> Any:
        """Return worker 0's value. No round is under way."""
        box = [value]
        dist.broadcast_object_list(box, group_src=0, group=self._rounds.group, device=torch.device("cpu"))
        return box[0]

    def began_turns(self) -> int:
        """Return how many rounds are over since all were together. One under way is begun anew after a resume."""
        return self.turn - (self._under_way is not None)

    def note_distance(self) -> None:
        """Note that the model may have other values than the centre."""
        for part in self._all_parts():
            part.is_dirty = True

    def stats(self) -> dict[str, Any]:
        """Return the counters of the rounds."""
        counted = {"rounds": self.rounds, "last_workers": self.workers, "sent_bytes": self.sent_bytes}
        return {**counted, "fragments": len(self.parts), "exposed_us": self._rounds.exposed_us}

    def abandon(self) -> None:
        """Leave at once, at the end of Python."""
        self.close(wait=False)

    def close(self, *, wait: bool) -> None:
        """Leave. With `wait` all have settled; without, the others hear of an error in their next round."""
        _services.forget(self)
        self._rounds.close(None if wait else self._tell_of_failure)

    # Below: what a hierarchy of periods does in another way.

    def _due(self) -> Part:
        """Return what the next round is about: the same on all workers that meet in it."""
        if not self.warm_left:
            return self.parts[self.turn % len(self.parts)]
        if self._warm is None:
            self._warm = self._part(self._all, Plain(self._rounds.group, self._all.elements), None)
        return self._warm

    def _answer(self) -> int:
        """Make one round for those who still train. Return how many do."""
        self._begin(takes_part=False)
        self.finish()
        return self.workers

    def _move(self, part: Part, *, took_part: bool, keep: float) -> None:
        part.move(took_part=took_part, keep=keep)
        if part is self._warm:
            for other in self.parts:
                other.is_dirty = part.is_dirty
            self.warm_left -= 1
            if not self.warm_left:
                self._warm = None

    def _all_parts(self) -> list[Part]:
        return [*self.parts, self._warm] if self._warm else self.parts

    def _tell_of_failure(self) -> None:
        """Take part in the next round of the others, and say that this worker has failed."""
        self._due().message.meet(takes_part=False, has_failed=True)

    def _now_equal(self) -> None:
        """Note that the model has the centre's values."""
        for part in self._all_parts():
            part.is_dirty = False

    # Above: that.

    def _meet(self) -> None:
        self._begin(takes_part=True)
        self.finish()

    def _begin(self, *, takes_part: bool, part: Part | None = None) -> None:
        part = part or self._due()
        if takes_part:
            part.bring()
        if not self.warm_left:
            self.turn += 1
        self._start(part, takes_part=takes_part)

    def _start(self, part: Part, *, takes_part: bool) -> None:
        self._under_way = (part, self._rounds.start(lambda: part.meet(takes_part=takes_part)), takes_part)

    def _part(self, fragment: Fragment, message: Message, outer: OuterFactory | None) -> Part:
        return Part(fragment, self.vector, message, outer, self._parameters)

    def _coded(self, elements: int) -> Message:
        if self._options.compression == OFF:
            return Plain(self._rounds.group, elements)
        return Coded(self._rounds.group, self._options.compression, elements)

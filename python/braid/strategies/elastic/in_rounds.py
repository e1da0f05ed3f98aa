# SPDX-License-Identifier: Apache-2.0
"""Elastic averaging in rounds of all workers: a reduction to the rank that has the centre, and a broadcast of it.

The vector of a round is [x - centre | float buffers | 1 | 1 | 0]. The last three numbers say whether this worker
takes part, whether its buffers count, and whether it failed; see strategies/rounds.

All workers know the centre to the bit. So they send differences from it, and no digits are lost.
"""

from collections.abc import Collection
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from braid.strategies.agreement import Agreement
from braid.strategies.averages import merged
from braid.strategies.elastic.centre_rank import choose
from braid.strategies.elastic.options import ElasticOptions
from braid.strategies.elastic.preparation import ElasticPrepared
from braid.strategies.rounds.collectives import finish
from braid.strategies.rounds.rounds import Round, Rounds, Said

_TAIL = 3
_PART, _BUFFERS, _FAILED = range(_TAIL)


class CentreInRounds:
    """The centre at one rank, and a copy of it everywhere.

    Attributes:
        root: the rank of the group that has the centre.
        rounds: how many rounds this worker has taken part in.
        workers: how many workers took part in the last round.
    """

    def __init__(
        self,
        agreed: Agreement[ElasticPrepared],
        group: Any,
        options: ElasticOptions,
        alpha: float,
        timeout_s: float,
    ) -> None:
        """Make the process group. Parameters and buffers become worker 0's."""
        self.meeting, prepared = agreed.meeting, agreed.prepared
        self._parameters, self._buffers, self._alpha = prepared.packing, prepared.buffer_packing, alpha
        middle, end = self._parameters.elements, self._parameters.elements + self._buffers.elements
        self._rounds = Rounds(group, "elastic averaging", self.meeting, timeout_s)
        self._group = self._rounds.group
        self._vector = torch.zeros(end + _TAIL, dtype=torch.float32)  # travels
        self._sent, self._centre = torch.zeros(2, end, dtype=torch.float32)
        self._values, self._tail = self._vector[:end], self._vector[end:]
        self._of_parameters, self._of_buffers = slice(0, middle), slice(middle, end)
        # Buffers that are broadcast are the first worker's.
        is_broadcast = prepared.buffers is not None and prepared.buffers.is_broadcast
        self._has_buffers = not is_broadcast or self.meeting.member == 0
        self._round: Round | None = None
        self._takes_part = False
        self.root, self.rounds, self.workers = 0, 0, self.meeting.workers
        self._start_from_first(prepared, timeout_s)
        if options.schedule != "sync1":
            self.root = choose(self._group, self.meeting, options.root, 4 * self._vector.numel(), timeout_s)

    @property
    def is_under_way(self) -> bool:
        """Whether a round has begun that is not finished."""
        return self._round is not None

    def begin(self) -> None:
        """Begin a round with the parameters of now."""
        parameters, buffers = self._views(self._vector)
        torch._foreach_copy_(parameters, self._parameters.tensors)
        self._vector[self._of_parameters].sub_(self._centre[self._of_parameters])
        if buffers:
            torch._foreach_copy_(buffers, self._buffers.tensors)
        self._sent.copy_(self._values)
        if not self._has_buffers:
            self._vector[self._of_buffers].zero_()
        self._start(takes_part=True)

    def finish(self) -> None:
        """Wait for the round under way, if any. Move the parameters, the buffers and the centre.

        Raises:
            CommunicatorError: a worker failed or died, or did not come in time.
        """
        begun, self._round = self._round, None
        if begun is None:
            return
        self.workers = begun.wait()
        self._centre.copy_(self._values)
        if not self._takes_part:
            return
        self.rounds += 1
        self._sent[self._of_parameters].mul_(self._alpha)
        moves, sent = self._views(self._sent)
        torch._foreach_sub_(self._parameters.tensors, moves)
        averages = self._views(self._centre)[1]
        for buffer, before, average in zip(self._buffers.tensors, sent, averages, strict=True):
            buffer.copy_(merged(buffer.float(), before, average))

    def centre(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the centre after the last finished round: parameters and float buffers."""
        return self._views(self._centre)

    def present(self) -> Collection[int]:
        """Return the workers that could change the centre alone: none."""
        return ()

    def set_centre(self, parameters: Tensor, buffers: Tensor) -> None:
        """Give the rounds a centre. Worker 0 calls this, and all call share_centre() afterwards."""
        self._centre[self._of_parameters].copy_(parameters)
        self._centre[self._of_buffers].copy_(buffers)

    def share_centre(self) -> None:
        """Give all workers the centre of worker 0."""
        dist.broadcast(self._centre, group_src=0, group=self._group)

    def settle(self) -> None:
        """Answer the others' rounds until all workers are here. Raises as finish() does."""
        self.finish()
        self._rounds.answer(self._answer)

    def stats(self) -> dict[str, Any]:
        """Return the counters of the rounds."""
        kept = sum(vector.nbytes for vector in (self._vector, self._sent, self._centre))
        counted = {"root": self.root, "last_workers": self.workers, "vector_bytes": kept}
        return {**counted, "exposed_us": self._rounds.exposed_us}

    def close(self, *, wait: bool) -> None:
        """Leave. With `wait` all have settled; without, the others hear of an error in their next round."""
        self._rounds.close(None if wait else self._tell_of_failure)

    def _answer(self) -> int:
        self._vector.zero_()
        self._start(takes_part=False)
        self.finish()
        return self.workers

    def _start(self, *, takes_part: bool) -> None:
        self._takes_part = takes_part
        self._tail[_PART], self._tail[_FAILED] = float(takes_part), 0.0
        self._tail[_BUFFERS] = float(takes_part and self._has_buffers)
        self._round = self._rounds.start(self._meet)

    def _meet(self) -> Said:
        finish(dist.reduce(self._vector, group_dst=self.root, group=self._group, async_op=True))
        if self.meeting.member == self.root:
            self._vector[self._of_parameters].mul_(self._alpha).add_(self._centre[self._of_parameters])
            if weight := self._tail[_BUFFERS].item():
                self._vector[self._of_buffers].div_(weight)
            else:
                self._vector[self._of_buffers].copy_(self._centre[self._of_buffers])
        finish(dist.broadcast(self._vector, group_src=self.root, group=self._group, async_op=True))
        return Said(self._tail[_PART].item(), self._tail[_FAILED].item())

    def _tell_of_failure(self) -> None:
        vector = torch.zeros_like(self._vector)
        vector[_FAILED - _TAIL] = 1.0
        finish(dist.reduce(vector, group_dst=self.root, group=self._group, async_op=True))
        finish(dist.broadcast(vector, group_src=self.root, group=self._group, async_op=True))

    def _views(self, vector: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        parts = vector[self._of_parameters], vector[self._of_buffers]
        return self._parameters.views(parts[0]), self._buffers.views(parts[1])

    def _start_from_first(self, prepared: ElasticPrepared, timeout_s: float) -> None:
        for packing, part in zip((self._parameters, self._buffers), self._views(self._centre), strict=True):
            if part:
                torch._foreach_copy_(part, packing.tensors)
        self.share_centre()
        for packing, part in zip((self._parameters, self._buffers), self._views(self._centre), strict=True):
            if part:
                torch._foreach_copy_(packing.tensors, part)

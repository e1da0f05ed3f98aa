# SPDX-License-Identifier: Apache-2.0
"""Elastic averaging in rounds of all workers: a reduction to the rank that has the centre, and a broadcast of it.

The vector of a round is [x - centre | float buffers | 1 | 1 | 0]. The last three numbers say whether this worker
takes part, whether its buffers count, and whether it failed. A worker that has finished answers the rounds of the
others with zeros, until nobody trains any more. So workers need not make the same number of steps.

All workers know the centre to the bit. So they send differences from it, and no digits are lost.
"""

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from braid._errors import CommunicatorError
from braid.strategies.agreement import Agreement
from braid.strategies.elastic.background import Background, Job
from braid.strategies.elastic.centre_rank import choose
from braid.strategies.elastic.options import ElasticOptions
from braid.strategies.elastic.preparation import ElasticPrepared

_TAIL = 3
_PART, _BUFFERS, _FAILED = range(_TAIL)


class CentreInRounds:
    """The centre at one rank, and a copy of it everywhere.

    Rounds have a process group of their own, and a thread. So the user's collectives may come between them, in
    another order on each rank.

    Attributes:
        root: the rank of the group that has the centre.
        rounds: how many rounds this worker has taken part in.
        workers: how many workers took part in the last round.
        exposed_us: how long the training thread has waited for rounds.
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
        self._group = _own_group(group, timeout_s)
        self._vector = torch.zeros(end + _TAIL)  # travels
        self._sent, self._centre = torch.zeros(end), torch.zeros(end)
        self._values, self._tail = self._vector[:end], self._vector[end:]
        self._of_parameters, self._of_buffers = slice(0, middle), slice(middle, end)
        # Buffers that are broadcast are the first worker's.
        is_broadcast = prepared.buffers is not None and prepared.buffers.is_broadcast
        self._has_buffers = not is_broadcast or self.meeting.member == 0
        self._job: Job | None = None
        self._takes_part = self._is_broken = False
        self.root, self.rounds, self.workers, self.exposed_us = 0, 0, self.meeting.workers, 0.0
        self._start_from_first(prepared, timeout_s)
        if options.schedule != "sync1":
            self.root = choose(self._group, self.meeting, options.root, 4 * self._vector.numel(), timeout_s)
        self._thread = Background("braid elastic averaging")

    @property
    def is_under_way(self) -> bool:
        """Whether a round has begun that is not finished."""
        return self._job is not None

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
        job, self._job = self._job, None
        if job is None:
            return
        self._wait(job)
        self.workers = round(self._tail[_PART].item())
        self._centre.copy_(self._values)
        if not self._takes_part:
            return
        self.rounds += 1
        self._sent[self._of_parameters].mul_(self._alpha)
        self._sent[self._of_buffers].sub_(self._centre[self._of_buffers])
        for packing, moves in zip((self._parameters, self._buffers), self._views(self._sent), strict=True):
            if moves:
                torch._foreach_sub_(packing.tensors, moves)

    def centre(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the centre after the last finished round: parameters and float buffers."""
        return self._views(self._centre)

    def set_centre(self, parameters: Tensor, buffers: Tensor) -> None:
        """Give the rounds a centre. Worker 0 calls this, and all call share_centre() afterwards."""
        self._centre[self._of_parameters].copy_(parameters)
        self._centre[self._of_buffers].copy_(buffers)

    def share_centre(self) -> None:
        """Give all workers the centre of worker 0."""
        dist.broadcast(self._centre, group_src=0, group=self._group)

    def settle(self) -> None:
        """Answer the others' rounds until all workers are here. Raises as finish() does."""
        exposed_us = self.exposed_us
        self.finish()
        while True:
            self._vector.zero_()
            self._start(takes_part=False)
            self.finish()
            if self.workers == 0:
                break
        self.exposed_us = exposed_us

    def stats(self) -> dict[str, Any]:
        """Return the counters of the rounds."""
        return {"root": self.root, "last_workers": self.workers, "exposed_us": self.exposed_us}

    def close(self, *, wait: bool) -> None:
        """Leave. With `wait` all have settled; without, the others hear of an error in their next round."""
        if not wait and not self._is_broken:
            self._thread.start(self._tell_of_failure)
        self._thread.stop()

    def _start(self, *, takes_part: bool) -> None:
        self._takes_part = takes_part
        self._tail[_PART], self._tail[_FAILED] = float(takes_part), 0.0
        self._tail[_BUFFERS] = float(takes_part and self._has_buffers)
        self._job = self._thread.start(self._round)

    def _round(self) -> None:
        dist.reduce(self._vector, group_dst=self.root, group=self._group)
        if self.meeting.member == self.root:
            self._vector[self._of_parameters].mul_(self._alpha).add_(self._centre[self._of_parameters])
            if weight := self._tail[_BUFFERS].item():
                self._vector[self._of_buffers].div_(weight)
            else:
                self._vector[self._of_buffers].copy_(self._centre[self._of_buffers])
        dist.broadcast(self._vector, group_src=self.root, group=self._group)

    def _tell_of_failure(self) -> None:
        vector = torch.zeros_like(self._vector)
        vector[_FAILED - _TAIL] = 1.0
        dist.reduce(vector, group_dst=self.root, group=self._group)
        dist.broadcast(vector, group_src=self.root, group=self._group)

    def _wait(self, job: Job) -> None:
        begun = time.perf_counter()
        self._is_broken = True
        try:
            job.wait()
        except (RuntimeError, ValueError) as error:  # of torch.distributed
            why = str(error).splitlines()[0]
            raise CommunicatorError(
                f"a round of elastic averaging failed, which needs all workers: {why}"
            ) from error
        finally:
            self.exposed_us += 1e6 * (time.perf_counter() - begun)
        if self._tail[_FAILED].item():
            raise CommunicatorError(
                "another worker has left elastic averaging after an error: its output says why"
            )
        self._is_broken = False

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
        if prepared.buffers is not None:
            prepared.buffers.share_integers(self.meeting, timeout_s)


def _own_group(group: Any, timeout_s: float) -> Any:
    """Make a process group with the ranks and the backend of a given one.

    It stays until torch destroys all groups. Else torch would give the next one with these ranks the same name,
    and the keys that this one has left in the store.
    """
    group = group or dist.group.WORLD
    return dist.new_group(
        dist.get_process_group_ranks(group),
        timeout=timedelta(seconds=timeout_s),
        backend=dist.get_backend_config(group),
        use_local_synchronization=True,
        group_desc="braid elastic averaging",
    )

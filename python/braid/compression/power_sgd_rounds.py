# SPDX-License-Identifier: Apache-2.0
"""PowerSGD rounds: the two operations of a bucket, which several buckets with short factors share."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from braid.compression.low_rank import Matrices

_LONG_ELEMENTS = 1 << 13


def is_long(elements: int) -> bool:
    """Return true if first factors of so many elements get an operation of their own.

    Shorter factors wait for those of the next bucket. Above about 200 Mbit/s their latency costs more than their
    bytes.
    """
    return elements >= _LONG_ELEMENTS


class PowerSGDRound:
    """The matrices of one bucket, or of several neighbouring buckets, in one step.

    A round computes two means: of the first factors, then of the second. Each call of advance() starts the next
    operation. Only the thread that runs the hooks calls it, in the order of the hooks. From callbacks, ranks could
    start operations in different orders.
    """

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        """Make a round without matrices."""
        self._group = group
        self._all: list[Matrices] = []
        self._futures: list[Future[None]] = []
        self._stages = [self._send, self._gather, self._rebuild]

    @property
    def is_open(self) -> bool:
        """Whether nothing was sent yet, so that matrices may be added."""
        return len(self._stages) == 3

    @property
    def stages_left(self) -> int:
        """How many calls of advance() are left until the mean gradients are in the buffers."""
        return len(self._stages)

    def add(self, matrices: Matrices) -> "Future[None]":
        """Add matrices to an open round.

        The future is done when the matrices' buffer has their mean gradients.
        """
        self._all.append(matrices)
        self._futures.append(torch.futures.Future())
        if is_long(sum(one.first.numel() for one in self._all)):
            self.advance()
        return self._futures[-1]

    def advance(self) -> None:
        """Wait for the operation under way, if any. Then start the next one, or write the results."""
        self._stages.pop(0)()

    def _send(self) -> None:
        self._begin([one.first for one in self._all])

    def _gather(self) -> None:
        self._end()
        for one in self._all:
            one.gather()
        self._begin([one.second for one in self._all])

    def _rebuild(self) -> None:
        self._end()
        for one, future in zip(self._all, self._futures, strict=True):
            one.rebuild()
            future.set_result(None)

    def _begin(self, parts: list[Tensor]) -> None:
        # Factors are short: copying them costs less than a second operation.
        self._parts, self._flat = parts, parts[0] if len(parts) == 1 else torch.cat(parts)
        work = dist.all_reduce(self._flat, op=dist.ReduceOp.AVG, group=self._group, async_op=True)
        assert work is not None
        self._work = work

    def _end(self) -> None:
        self._work.wait()
        if len(self._parts) > 1:
            torch._foreach_copy_(self._parts, self._flat.split([part.numel() for part in self._parts]))

# SPDX-License-Identifier: Apache-2.0
"""The two operations of PowerSGD: those of several buckets that are short travel as one."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from braid.compression.low_rank import Matrices

_LONG_ELEMENTS = 1 << 13


def is_long(elements: int) -> bool:
    """Tell whether so many first factors are worth an operation of their own; fewer wait for the next bucket's.

    Fewer take longer for their messages than for their bytes, but on links below some 200 Mbit/s.
    """
    return elements >= _LONG_ELEMENTS


class PowerSGDRound:
    """Matrices of one bucket, or of several that follow each other, on their way through two means in one step.

    Every call of advance() starts the next operation. It is called by the thread that runs the hooks, in the order
    of the hooks: were operations started from callbacks, ranks could disagree about their order.
    """

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        """Begin without any."""
        self._group = group
        self._all: list[Matrices] = []
        self._futures: list[Future[None]] = []
        self._stages = [self._send, self._gather, self._rebuild]

    @property
    def is_open(self) -> bool:
        """Whether nothing was sent yet, so that more may come along."""
        return len(self._stages) == 3

    @property
    def stages_left(self) -> int:
        """How often to advance until the mean gradients are in the buffers."""
        return len(self._stages)

    def add(self, matrices: Matrices) -> "Future[None]":
        """Take matrices along, while it is open; the future is done when the buffer has their mean gradients."""
        self._all.append(matrices)
        self._futures.append(torch.futures.Future())
        if is_long(sum(one.first.numel() for one in self._all)):
            self.advance()
        return self._futures[-1]

    def advance(self) -> None:
        """Wait for the operation that is under way, if any, and start the next, or write the results."""
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
        # Factors are thin: to copy them takes little beside one more operation.
        self._parts, self._flat = parts, parts[0] if len(parts) == 1 else torch.cat(parts)
        work = dist.all_reduce(self._flat, op=dist.ReduceOp.AVG, group=self._group, async_op=True)
        assert work is not None
        self._work = work

    def _end(self) -> None:
        self._work.wait()
        if len(self._parts) > 1:
            torch._foreach_copy_(self._parts, self._flat.split([part.numel() for part in self._parts]))

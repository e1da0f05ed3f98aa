# SPDX-License-Identifier: Apache-2.0
"""Buffers of a model, such as the running statistics of BatchNorm, under asynchronous workers.

Workers do not meet, so nobody can take a mean of their buffers at one moment. Before each push a worker pulls, and
adds what its buffers have changed since it last took the servers'. The push moves the servers' buffers towards the
sum: with n workers by 1/n of the way, for a group by its part of all workers. So the servers' statistics move with
the mean of all workers' batches.

A push that lands between another worker's pull and push counts less: that worker moves a part of it back. Each
other worker can do so once. So of n workers that count alike a push counts at least (1 - 1/n)^(n - 1) of its part,
which is above 1/e. An added difference would count in full, but could leave the range of values that workers had.

Or they are broadcast: only the first worker pushes, and the servers take its buffers as they are.
"""

import torch
from torch import Tensor

from braid.strategies.averages import RULE, merged, towards
from braid.strategies.options import Options
from braid.strategies.packing import Packing
from braid.strategies.service import SharedVector
from braid.strategies.store import Meeting


class Buffers:
    """The float buffers that move: averaged, or worker 0's.

    Attributes:
        is_broadcast: they are the first worker's, not averages.
        packing: of the buffers.
        vector: the buffers at the servers, if there are any.
    """

    def __init__(self, packing: Packing, *, is_broadcast: bool = False) -> None:
        """Note the buffers."""
        self.is_broadcast = is_broadcast
        self.packing = packing
        self._weight = 1.0
        self.vector: SharedVector | None = None

    def start(
        self, meeting: Meeting, servers: list[int], settings: str, timeout_s: float, part: float | None = None
    ) -> None:
        """Give all workers the buffers of worker 0; a late one gets those of the servers.

        `part`: how much this worker's buffers count, from 0 to 1; with n workers 1/n by default.
        """
        self._weight = part or 1.0 / meeting.workers
        if self.is_broadcast:
            self._weight = float(meeting.member == 0)
        if not self.packing.elements:
            return
        self.vector = SharedVector(
            *(meeting, "buffers", servers),
            elements=self.packing.elements,
            rule=RULE,
            settings=settings,
            options=Options(),  # asynchronous in every mode: nobody waits for a statistic
            timeout_s=timeout_s,
        )
        # What the servers had when this worker took their values, and what this worker had when it pushed.
        self._base, self._sent = torch.zeros(2, self.packing.elements, dtype=torch.float32)
        self._updates = self.packing.views(self.vector.update)
        self._outs = self.packing.views(self.vector.out)
        torch._foreach_copy_(self._updates, self.packing.tensors)
        self.vector.start()
        self._take()

    def begin(self) -> None:
        """Start to push the buffers of now, and to pull. What does not count or has not changed stays here."""
        if self.vector is None:
            return
        torch._foreach_copy_(self._updates, self.packing.tensors)
        self._sent.copy_(self.vector.update)
        if not self._weight or torch.equal(self._sent, self._base):
            self.vector.begin_pull()
            return
        self.vector.pull()
        self.vector.update.copy_(merged(self._sent, self._base, self.vector.out))
        self.vector.push_pull([(self.packing.elements, towards(self._weight))], -1.0)

    def finish(self) -> None:
        """Wait for the push under way. Take the servers' values, and keep what has changed since: see merged()."""
        if self.vector is None or not self.vector.finish():
            return
        if not self._weight:
            self._take()
            return
        torch._foreach_copy_(self._updates, self.packing.tensors)
        now, values = self.vector.update, self.vector.out
        is_old = now == self._sent
        torch._foreach_copy_(self.packing.tensors, self.packing.views(merged(now, self._sent, values)))
        # Buffers of 16 bits were rounded. What rounding took away is no change of this worker.
        torch._foreach_copy_(self._updates, self.packing.tensors)
        torch.where(is_old, now, values, out=self._base)

    @property
    def arrived(self) -> list[Tensor]:
        """What the last exchange brought, without this worker's changes: float32, in the order of the packing."""
        return self._outs

    def pull(self) -> None:
        """Take the servers' newest values. What has changed since the last push is dropped."""
        if self.vector is not None:
            self.vector.pull()
            self._take()

    def look(self) -> list[Tensor]:
        """Pull and return the servers' newest values, in the order of the packing. The model keeps its own."""
        if self.vector is None:
            return []
        self.vector.pull()
        return self._outs

    def close(self, *, wait: bool) -> None:
        """Leave the service, as SharedVector.close()."""
        if self.vector is not None:
            self.vector.close(wait=wait)

    def _take(self) -> None:
        torch._foreach_copy_(self.packing.tensors, self._outs)
        torch._foreach_copy_(self.packing.views(self._base), self.packing.tensors)


def buffers_of(packing: Packing, option: str) -> Buffers | None:
    """Return what the option ``buffers`` means; None if buffers stay each worker's own."""
    return None if option == "local" else Buffers(packing, is_broadcast=option == "broadcast")

# SPDX-License-Identifier: Apache-2.0
"""How the mean of all workers' vectors is computed in a round: as float32, or through a codec."""

from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from braid._codec import Codec
from braid.strategies.rounds.collectives import finish
from braid.strategies.rounds.rounds import Said

_TAIL = 2  # how many take part, how many have failed
_TAIL_BYTES = 4 * _TAIL


class Message(Protocol):
    """A vector that all workers bring, and their mean.

    Attributes:
        vector: what this worker brings; after a round the mean of those that took part. Float32.
        sent_bytes: what a worker sends in a round.
    """

    vector: Tensor
    sent_bytes: int

    def meet(self, *, takes_part: bool, has_failed: bool = False) -> Said:
        """Compute the mean. All workers of the group call this; who does not take part brings nothing."""

    def residuals(self) -> list[Tensor]:
        """Return what messages have lacked so far, for the next one."""


class Plain:
    """An all_reduce of float32."""

    def __init__(self, group: Any, elements: int) -> None:
        """Allocate a vector of so many elements for the workers of a process group."""
        self._group = group
        self._all = torch.zeros(elements + _TAIL, dtype=torch.float32)
        self.vector, self._tail = self._all[:elements], self._all[elements:]
        workers = dist.get_world_size(group)
        self.sent_bytes = 2 * (workers - 1) * 4 * elements // workers

    def meet(self, *, takes_part: bool, has_failed: bool = False) -> Said:
        """As Message.meet()."""
        if not takes_part:
            self.vector.zero_()
        self._tail[0], self._tail[1] = float(takes_part), float(has_failed)
        finish(dist.all_reduce(self._all, group=self._group, async_op=True))
        said = Said(*self._tail.tolist())
        if said.workers:
            self.vector.div_(said.workers)
        return said

    def residuals(self) -> list[Tensor]:
        """Return nothing: float32 lacks nothing."""
        return []


class Coded:
    """A reduce-scatter and an all-gather of encoded shards, each with error feedback.

    Each worker encodes its shard for every other worker, adds up what arrives, and encodes the mean once more. All
    decode the same bytes, so all have the same mean.
    """

    def __init__(self, group: Any, codec: str, elements: int) -> None:
        """Allocate memory for a process group and a codec."""
        self._group, self._codec = group, Codec(codec)
        self._workers = dist.get_world_size(group)
        blocks = -(-elements // (self._workers * self._codec.block_elements))
        self._shard = blocks * self._codec.block_elements
        self._padded = torch.zeros(self._workers * self._shard, dtype=torch.float32)
        self.vector = self._padded[:elements]
        self._lacking = torch.zeros_like(self._padded)
        self._lacking_mean = torch.zeros(self._shard, dtype=torch.float32)
        self._bytes = self._codec.encoded_bytes(self._shard)
        self._rounds = 0
        self.sent_bytes = 2 * (self._workers - 1) * self._bytes

    def meet(self, *, takes_part: bool, has_failed: bool = False) -> Said:
        """As Message.meet()."""
        self._rounds += 1
        said, total = self._scatter(takes_part, has_failed)
        if not said.workers:
            return said
        mine = torch.empty(self._bytes, dtype=torch.uint8)
        self._codec.encode(total, residual=self._lacking_mean, scale=1 / said.workers, seed=self._rounds, out=mine)
        means = torch.empty(self._workers * self._bytes, dtype=torch.uint8)
        finish(dist.all_gather_into_tensor(means, mine, group=self._group, async_op=True))
        for message, part in zip(means.split(self._bytes), self._padded.split(self._shard), strict=True):
            self._codec.decode(message, part)
        return said

    def residuals(self) -> list[Tensor]:
        """Return what this worker's vectors have lacked, and what the means of its shard have."""
        return [self._lacking, self._lacking_mean]

    def _scatter(self, takes_part: bool, has_failed: bool) -> tuple[Said, Tensor]:
        """Send all shards; return the sum of those that have come here, and what all have said."""
        row = self._bytes + _TAIL_BYTES
        out = torch.zeros(self._workers * row, dtype=torch.uint8)
        told = torch.tensor([float(takes_part), float(has_failed)], dtype=torch.float32).view(torch.uint8)
        shards = zip(
            out.split(row), self._padded.split(self._shard), self._lacking.split(self._shard), strict=True
        )
        for place, (message, values, lacking) in enumerate(shards):
            if takes_part:
                seed = self._rounds * self._workers + place
                self._codec.encode(values, residual=lacking, seed=seed, out=message[: self._bytes])
            message[self._bytes :] = told
        arrived = torch.empty_like(out)
        finish(dist.all_to_all_single(arrived, out, group=self._group, async_op=True))
        total, said = torch.zeros(self._shard, dtype=torch.float32), Said()
        for message in arrived.split(row):
            weight, failures = message[self._bytes :].clone().view(torch.float32).tolist()
            said.workers += weight
            said.failures += failures
            if weight:
                self._codec.decode_add(message[: self._bytes], total)
        return said, total

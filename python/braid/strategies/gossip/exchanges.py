# SPDX-License-Identifier: Apache-2.0
"""What two workers do when they meet: one exchange of each mode, in two halves."""

from dataclasses import dataclass

import torch
from torch import Tensor

from braid.strategies.gossip.local import Local
from braid.strategies.gossip.options import DISSEMINATION, PULL, PUSH_SUM
from braid.strategies.gossip.vector import STEP_S, STEPS, TAIL, WEIGHT, WorkerVector, new_vector

# Modes that only send look at what the other one has once in so many exchanges.
_LOOK_EVERY = 16


@dataclass
class Seen:
    """What an exchange has shown of the other worker; None where it was not looked at.

    Attributes:
        distance: |x_i - x_j| / |x_i|, before the exchange.
        steps, step_s: how many it has taken, and how long one takes.
        versions: of this worker's values that were read; after the exchange, of the other's and of this one's.
    """

    distance: float | None = None
    steps: int | None = None
    step_s: float | None = None
    versions: tuple[int, int, int] = (0, 0, 0)


class Exchange:
    """The exchanges that one worker begins. Use it from one thread: read(), then send()."""

    def __init__(self, local: Local, mode: str) -> None:
        """Take memory for two vectors."""
        self._local, self._mode = local, mode
        self._own = new_vector(local.packing.elements)
        self._other = new_vector(local.packing.elements)
        self._read = 0
        self._made = 0
        self.lost_weight = 0.0

    def read(self) -> bool:
        """Read this worker's values; with push-sum, take half of them away. False if there is nothing to send."""
        if self._mode == PUSH_SUM:
            return self._local.take_half(self._own)
        self._read = self._local.vector.pull(self._own)
        return True

    def send(self, peer: WorkerVector) -> Seen:
        """Exchange what was read with a peer.

        Raises:
            CommunicatorError: the peer is lost. This worker's values are as before, but with push-sum what was
                read is lost, too: nobody knows whether it has arrived, and it must not count twice.
        """
        looks = self._made % _LOOK_EVERY == 0
        if self._mode == PUSH_SUM:
            seen = self._push_sum(peer, looks)
        elif self._mode == DISSEMINATION:
            seen = self._disseminate(peer, looks)
        elif self._mode == PULL:
            seen = self._pull(peer)
        else:
            seen = self._symmetric(peer)
        self._made += 1
        return seen

    def _symmetric(self, peer: WorkerVector) -> Seen:
        at_peer = peer.average(self._own, self._other)
        norm = _norm(self._own)
        apart = 2 * _norm(self._own - self._other)
        after = self._local.take_mean(self._own, self._other, self._read)
        return self._seen(apart, norm, (self._read, at_peer, after))

    def _push_sum(self, peer: WorkerVector, looks: bool) -> Seen:
        weight = self._own[WEIGHT].item()
        try:
            peer.add(self._own, self._other if looks else None)
        except BaseException:
            self.lost_weight += weight
            raise
        theirs = self._other[WEIGHT].item() - weight
        if not looks or theirs <= 0:
            return Seen()
        apart = (self._other - self._own).div_(theirs).sub_(self._own, alpha=1 / weight)
        return self._seen(_norm(apart), _norm(self._own) / weight)

    def _disseminate(self, peer: WorkerVector, looks: bool) -> Seen:
        at_peer = peer.average(self._own, self._other if looks else None)
        versions = (self._read, at_peer, 0)
        if not looks:
            return Seen(versions=versions)
        return self._seen(2 * _norm(self._other - self._own), _norm(self._own), versions)

    def _pull(self, peer: WorkerVector) -> Seen:
        at_peer = peer.pull(self._other)
        after = self._local.take_average(self._other)
        norm = _norm(self._own)
        return self._seen(_norm(self._own.sub_(self._other)), norm, (self._read, at_peer, after))

    def _seen(self, apart: float, norm: float, versions: tuple[int, int, int] = (0, 0, 0)) -> Seen:
        steps, step_s = int(self._other[STEPS].item()), float(self._other[STEP_S].item())
        return Seen(apart / norm if norm > 0 else None, steps, step_s, versions)


def _norm(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector[:-TAIL]).item())

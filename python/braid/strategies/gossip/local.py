# SPDX-License-Identifier: Apache-2.0
"""A model and the vector that others average with: the training thread brings its steps, and takes what came."""

import threading

import torch
from torch import Tensor

from braid.strategies.averages import merged
from braid.strategies.gossip.vector import STEP_S, STEPS, TAIL, WEIGHT, WorkerVector, new_vector
from braid.strategies.packing import Packing

# A worker of less weight sends none: it would have nothing left if others were silent for long.
LEAST_WEIGHT = 1.0 / 64


class Local:
    """The training thread's side. A model has values z; its vector has z, or with weights z times the weight.

    What a step changed of the parameters is added to the vector as a difference. So steps and exchanges may come
    in any order, and nothing that others did meanwhile is lost. Float buffers are moving averages, and stay within
    the range of values that workers had: see averages.py.

    Attributes:
        from_others: updates of the vector that other workers had made at the last sync().
    """

    def __init__(self, vector: WorkerVector, packing: Packing, parameters: int, *, is_weighted: bool) -> None:
        """Note what there is: of the packing's elements, the first are `parameters`. install() comes next."""
        self.vector, self.packing = vector, packing
        self._of_buffers = slice(parameters, packing.elements)
        self._version = -1  # of the vector, when the model took its values
        self._own_updates = self.from_others = 0
        self._is_weighted = is_weighted
        self._lock = threading.Lock()  # between a read of the weight, and what is computed with it
        self._update, self._out = new_vector(packing.elements), new_vector(packing.elements)
        self._base = torch.zeros(packing.elements, dtype=torch.float32)
        self._bases = packing.views(self._base)
        self._updates = packing.views(self._update[:-TAIL])
        self._outs = packing.views(self._out[:-TAIL])

    def install(self, values: Tensor, weight: float = 1.0) -> None:
        """Begin with values of shape (elements,), in the model and in the vector."""
        with self._lock:
            self._out.zero_()
            self._out[:-TAIL].copy_(values)
            self._take()
            if self._is_weighted:
                self._out[:-TAIL].mul_(weight)
            # Without weights all count alike; 0 is a worker that does not count yet.
            self._out[WEIGHT] = weight if self._is_weighted else float(weight > 0)
            self.vector.install(self._out)
            self._own_updates, self.from_others = self.vector.version(), 0

    def sync(self, steps: int, step_s: float) -> int:
        """Add what the model has changed since the last call, and give the model the newest values.

        Args:
            steps: steps since the last call.
            step_s: how much longer a step takes than at the last call.

        Returns:
            The version of the vector's values that the model has now.
        """
        torch._foreach_copy_(self._updates, self.packing.tensors)
        buffers, base = self._update[self._of_buffers].clone(), self._base[self._of_buffers]
        change = self._update[:-TAIL].sub_(self._base)
        self._update[-TAIL:] = 0.0
        self._update[STEPS], self._update[STEP_S] = steps, step_s
        with self._lock:
            if self._is_weighted:
                self.vector.pull(self._out)
                weight = self._out[WEIGHT].item()
                values = self._out[:-TAIL].div_(weight)
                change[self._of_buffers] = (
                    merged(buffers, base, values[self._of_buffers]) - values[self._of_buffers]
                )
                values.add_(change)
                change.mul_(weight)
                version = self.vector.add(self._update)
            else:
                if buffers.numel() and self.vector.version() != self._version:
                    self.vector.pull(self._out)
                change[self._of_buffers] = merged(buffers, base, self._out[self._of_buffers])
                version = self._version = self.vector.move(self._update, self._out)
            self._own_updates += 1
            self.from_others = version - self._own_updates
            self._take()
        return version

    def take_average(self, other: Tensor) -> int:
        """Move the vector to its mean with `other`. Return the new version."""
        with self._lock:
            self._own_updates += 1
            return self.vector.average(other)

    def take_mean(self, read: Tensor, mean: Tensor, version: int) -> int:
        """Move the vector as far as from `read`, its values at that version, to `mean`. Return the new version."""
        update = mean - read
        update[-TAIL:] = 0.0
        with self._lock:
            now = read
            if self._of_buffers.start < self._of_buffers.stop and self.vector.version() != version:
                self.vector.pull(now := torch.empty_like(read))
            update[self._of_buffers] = merged(*(vector[self._of_buffers] for vector in (now, read, mean)))
            self._own_updates += 1
            return self.vector.move(update)

    def take_half(self, half: Tensor) -> bool:
        """Move half of values and weight out of the vector. False if it has too little weight."""
        with self._lock:
            self.vector.pull(half)
            half.mul_(0.5)
            half[WEIGHT + 1 :] = 0.0
            if half[WEIGHT] < LEAST_WEIGHT / 2:
                return False
            self._own_updates += 1
            self.vector.subtract(half)
        return True

    def values(self, out: Tensor) -> float:
        """Put the vector into `out`, of elements and tail. Return its weight."""
        self.vector.pull(out)
        return float(out[WEIGHT].item())

    def _take(self) -> None:
        torch._foreach_copy_(self.packing.tensors, self._outs)
        # What rounding to 16 bits takes away is no change of this worker.
        torch._foreach_copy_(self._bases, self.packing.tensors)

# SPDX-License-Identifier: Apache-2.0
"""When factors are cheaper than the gradient they make: bytes on the way, and the product everybody must form."""

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from braid._torch.lossy import predict_all_reduce
from braid.compression.operations import compute_alike

_MEASURED_EXTENT = 384  # of the square matrices that are multiplied to see how fast that goes
_REPEATS = 3
_SMALL, _LARGE = 1 << 16, 1 << 24  # elements


class FactorCost:
    """Compares two ways for a gradient of M x N. All ranks compare alike: they agree once on the slowest speed."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        """Measure how fast matrices are multiplied here; all ranks of the group must come."""
        self.ranks: int = dist.get_world_size(group)
        self.are_alike = compute_alike(group)  # else products would differ in their last bits from rank to rank
        small_s, large_s = predict_all_reduce(_SMALL, None, group), predict_all_reduce(_LARGE, None, group)
        # One line through two predictions, for they may change later, and not in the same moment everywhere.
        least = torch.tensor([_flops_per_s(), small_s, large_s], dtype=torch.float64)
        dist.all_reduce(least, op=dist.ReduceOp.MIN, group=group)
        numbers: list[float] = least.tolist()
        self.flops_per_s, small_s, large_s = numbers
        self._s_per_element = (large_s - small_s) / (_LARGE - _SMALL)
        self._latency_s = small_s - _SMALL * self._s_per_element

    def most_rows(self, out_features: int, in_features: int) -> float:
        """Return K of each rank up to which factors are not more bytes: 2 M N / (P (M + N))."""
        return float(2 * out_features * in_features) / (self.ranks * (out_features + in_features))

    def prefers_factors(self, rows: Sequence[int], out_features: int, in_features: int) -> bool:
        """Tell which way is predicted to take less time, for these numbers of rows by rank."""
        most = max(rows)
        if self.ranks == 1 or not self.are_alike or most > self.most_rows(out_features, in_features):
            return False
        # All ranks send as much as the one with the most rows. An all_gather is the second half of an all_reduce.
        gather_s = self._all_reduce_s(self.ranks * most * (out_features + in_features)) / 2
        rebuild_s = 2 * (sum(rows) * (1 - 1 / self.ranks)) * out_features * in_features / self.flops_per_s
        return gather_s + rebuild_s < self._all_reduce_s(out_features * in_features)

    def _all_reduce_s(self, elements: int) -> float:
        return self._latency_s + elements * self._s_per_element


def _flops_per_s() -> float:
    a = torch.ones(_MEASURED_EXTENT, _MEASURED_EXTENT)
    best = float("inf")
    torch.mm(a, a)
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        torch.mm(a, a)
        best = min(best, time.perf_counter() - begin)
    return 2 * _MEASURED_EXTENT**3 / best

# SPDX-License-Identifier: Apache-2.0
"""Predicts whether factors are faster than the gradient: their bytes, and the product that every rank computes."""

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from braid._torch.lossy import predict_all_reduce
from braid.compression.operations import compute_alike

_MEASURED_EXTENT = 384  # rows and columns of the matrices whose product is timed
_REPEATS = 3
_SMALL, _LARGE = 1 << 16, 1 << 24  # elements


class FactorCost:
    """Compares factors with the whole gradient, M x N. All ranks compare alike: they agree once on all numbers."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        """Measure how fast this process multiplies matrices. All ranks of the group must call this."""
        self.ranks: int = dist.get_world_size(group)
        self.are_alike = compute_alike(group)  # else products would differ in their last bits from rank to rank
        small_s, large_s = predict_all_reduce(_SMALL, None, group), predict_all_reduce(_LARGE, None, group)
        # One line through two predictions is kept: later predictions may change, and not on all ranks at once.
        least = torch.tensor([_flops_per_s(), small_s, large_s], dtype=torch.float64)
        dist.all_reduce(least, op=dist.ReduceOp.MIN, group=group)
        numbers: list[float] = least.tolist()
        self.flops_per_s, small_s, large_s = numbers
        self._s_per_element = (large_s - small_s) / (_LARGE - _SMALL)
        self._latency_s = small_s - _SMALL * self._s_per_element

    def most_rows(self, out_features: int, in_features: int) -> float:
        """Return the rows per rank up to which factors are not more bytes: 2 M N / (P (M + N)), with P ranks."""
        return float(2 * out_features * in_features) / (self.ranks * (out_features + in_features))

    def prefers_factors(self, rows: Sequence[int], out_features: int, in_features: int) -> bool:
        """Return true if factors are predicted to take less time. `rows` has the number of rows of each rank."""
        most = max(rows)
        if self.ranks == 1 or not self.are_alike or most > self.most_rows(out_features, in_features):
            return False
        # Every rank sends as many rows as the rank with most. An all_gather is the second half of an all_reduce.
        gather_s = self._all_reduce_s(self.ranks * most * (out_features + in_features)) / 2
        rebuild_s = 2 * (sum(rows) * (1 - 1 / self.ranks)) * out_features * in_features / self.flops_per_s
        return gather_s + rebuild_s < self._all_reduce_s(out_features * in_features)

    def _all_reduce_s(self, elements: int) -> float:
        return self._latency_s + elements * self._s_per_element


def _flops_per_s() -> float:
    a = torch.ones(_MEASURED_EXTENT, _MEASURED_EXTENT, dtype=torch.float32)
    best = float("inf")
    torch.mm(a, a)
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        torch.mm(a, a)
        best = min(best, time.perf_counter() - begin)
    return 2 * _MEASURED_EXTENT**3 / best

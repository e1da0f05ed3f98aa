# SPDX-License-Identifier: Apache-2.0
"""Random data whose results are known exactly, so that every element of every result can be checked.

Inputs are whole numbers so small that no order of adding them rounds, in any dtype. They repeat with a period
that is prime, so that no chunk, block or page begins like another; hence expected results cost one period, not a
buffer. Everything is compared as bits. Outputs are poisoned first with bits that no result has.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from braid._bench.workload import Workload

Values = npt.NDArray[np.int64]
Bits = npt.NDArray[np.unsignedinteger[Any]]
# Turns whole numbers into elements of a dtype, seen as unsigned numbers of their width; a complex element as two.
Encode = Callable[[Values], Bits]

PERIOD = 262_147
POISON = 0xA5
# Up to here a dtype has every whole number.
_EXACT = {"float8_e4m3fn": 16, "float8_e5m2": 8, "bfloat16": 256, "float16": 2048, "bool": 1}
_MOST = 64  # of any: bytes stay below the poison


@dataclass(frozen=True)
class Region:
    """A part of a buffer, in elements, filled with a pattern from its beginning on, or from `phase` on."""

    start: int
    length: int
    values: Values
    phase: int = 0


class Pattern:
    """The inputs of all ranks of one check, and the outputs that they must give."""

    def __init__(self, work: Workload, ranks: int, seed: int) -> None:
        """Draw nothing yet: each rank draws what it needs, alike on all."""
        self._work, self._ranks, self._seed = work, ranks, seed
        self._period = max(1, min(PERIOD, work.count))
        self._block = work.count // ranks

    def inputs(self, rank: int) -> list[Region]:
        """Return what a rank's input is filled with; an empty list where it has none."""
        work, ranks, block = self._work, self._ranks, self._block
        match work.collective:
            case "all_gather" | "gather":
                return [Region(0, block, self._values(rank))]
            case "all_to_all":
                return [Region(i * block, block, self._values(rank, i)) for i in range(ranks)]
            case "scatter":
                return [Region(i * block, block, self._values(0, i)) for i in range(ranks)] if rank == 0 else []
            case "broadcast":
                return [Region(0, work.count, self._values(0))] if rank == 0 else []
        return [Region(0, work.count, self._values(rank))]

    def outputs(self, rank: int) -> list[Region]:
        """Return what a rank's output must be; an empty list where nothing is promised."""
        work, ranks, block = self._work, self._ranks, self._block
        match work.collective:
            case "all_reduce":
                return [Region(0, work.count, self._reduced())]
            case "reduce":
                return [Region(0, work.count, self._reduced())] if rank == 0 else []
            case "reduce_scatter":
                return [Region(0, block, self._reduced(), rank * block)]
            case "all_gather":
                return [Region(i * block, block, self._values(i)) for i in range(ranks)]
            case "gather":
                return [Region(i * block, block, self._values(i)) for i in range(ranks)] if rank == 0 else []
            case "all_to_all":
                return [Region(i * block, block, self._values(i, rank)) for i in range(ranks)]
            case "scatter":
                return [Region(0, block, self._values(0, rank))]
            case "broadcast":
                return [Region(0, work.count, self._values(0))]
            case "send_recv":
                return [Region(0, work.count, self._values((rank - 1) % ranks))]
            case "ping_pong":  # back comes what went
                return [Region(0, work.count, self._values(0))] if rank < 2 else []
        return []

    def _values(self, rank: int, block: int = 0) -> Values:
        draw = np.random.default_rng([self._seed, rank, block])
        dtype, op, ranks = self._work.dtype, self._work.op, self._ranks
        most = min(_EXACT.get(dtype, _MOST), _MOST)
        signed = not dtype.startswith("uint") and dtype != "bool"
        if op == "product":
            # Eight at most, whatever the number of ranks.
            choices = [1, 2] if rank < 3 and most > 1 else [1, -1] if signed else [1]
            return draw.choice(np.array(choices, np.int64), self._period)
        if op in ("sum", "avg"):
            most = most // ranks if most >= ranks else int(rank < most)  # the sum of all must be exact
        scale = 1
        if op == "avg":
            # So must the average: all give multiples of their number, or, where those are too large, the same.
            if most >= ranks:
                scale, most = ranks, most // ranks
            else:
                draw = np.random.default_rng([self._seed, 0, block])
        return scale * draw.integers(-most if signed else 0, most, self._period, endpoint=True)

    def _reduced(self) -> Values:
        total = self._values(0)
        for rank in range(1, self._ranks):
            total = _COMBINE[self._work.op](total, self._values(rank))
        if self._work.op == "avg":
            total = np.trunc(total / self._ranks).astype(np.int64)
        return np.minimum(total, 1) if self._work.dtype == "bool" else total


_COMBINE: dict[str, Callable[[Values, Values], Values]] = {
    "sum": np.add,
    "avg": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}


def fill(bits: Bits, regions: list[Region], encode: Encode) -> None:
    """Write the regions into a buffer, given as unsigned numbers of its elements' width."""
    for region in regions:
        for part, expected in _pieces(bits, region, encode):
            part[:] = expected


def count_wrong(bits: Bits, regions: list[Region], encode: Encode, tolerance: int = 0) -> int:
    """Count the elements that differ from the regions, by more than `tolerance` units in the last place."""
    wrong = 0
    for region in regions:
        for part, expected in _pieces(bits, region, encode):
            if tolerance:
                apart = np.maximum(part, expected) - np.minimum(part, expected)
                wrong += int(np.count_nonzero(apart > tolerance))
            else:
                wrong += int(np.count_nonzero(part != expected))
    return wrong


def poison(bits: Bits) -> None:
    """Fill a buffer with bits that no result has."""
    bits.view(np.uint8)[:] = POISON


def _pieces(bits: Bits, region: Region, encode: Encode) -> Iterator[tuple[Bits, Bits]]:
    """Cut a region into periods: pairs of a part of the buffer and what belongs there."""
    encoded = encode(region.values)
    units = len(encoded) // len(region.values)
    first = region.phase * units % len(encoded)
    at, end = region.start * units, (region.start + region.length) * units
    while at < end:
        step = min(len(encoded) - first, end - at)
        yield bits[at : at + step], encoded[first : first + step]
        at, first = at + step, 0

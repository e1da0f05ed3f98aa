# SPDX-License-Identifier: Apache-2.0
"""How fast the processes of a team copy and add, all at the same time: what the machine's memory can do.

Rates are bytes of payload per second: of a copy the bytes copied, once, and of an addition ``a += b`` the bytes of
a. A copy moves two bytes of memory per byte of payload, an addition three. GB/s are of 10^9 bytes.
"""

import itertools
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Buffers = tuple[Array, Array]
Operation = Callable[[Array, Array], object]
# Pairs of pieces that are worked on between two looks at the clock, and their bytes.
Stretch = tuple[list[tuple[Array, Array]], int]

SMALLEST_BYTES = 4 << 10
# Far beyond most caches, and of two such buffers every rank has memory enough.
LARGEST_BYTES = 64 << 20
# Larger buffers are walked through in pieces, as collectives do, so that a window ends nearly on time.
_PIECE_BYTES = 1 << 20
# So much between two looks at the clock: a look costs as much as the copy of some KiB.
_STRETCH_BYTES = 64 << 10
_ROUNDS = 2
# Buffers begin a cache line, as those of collectives do, and not at the same place of a page, where loads would
# wait for stores: without either, additions in cache are a third slower.
_LINE_BYTES = 64
_GAP_BYTES = 2112


@dataclass(frozen=True)
class Samples:
    """What one process found: bytes per second, by round and by size."""

    sizes: list[int]
    copy: list[list[float]]
    add: list[list[float]]


@dataclass(frozen=True)
class Rates:
    """Bytes per second of all processes together, by the size in bytes of each one's buffers, ascending.

    A rate is never below that of a larger size: a small buffer cannot be slower, only the calls for it dearer.
    """

    sizes: list[int]
    copy: list[float]
    add: list[float]

    def copy_at(self, size: float) -> float:
        """Bytes per second copied from and into buffers of `size` bytes; between measured sizes, interpolated."""
        return self._at(self.copy, size)

    def add_at(self, size: float) -> float:
        """Bytes per second added."""
        return self._at(self.add, size)

    def _at(self, rates: list[float], size: float) -> float:
        at = bisect_left(self.sizes, size)
        if at in (0, len(self.sizes)):
            return rates[max(at - 1, 0)]
        low, high = self.sizes[at - 1 : at + 1]
        share = math.log(size / low) / math.log(high / low)
        return rates[at - 1] + share * (rates[at] - rates[at - 1])

    @property
    def copy_gb_s(self) -> float:
        """What is copied of the largest buffers, in GB/s."""
        return self.copy[-1] / 1e9

    @property
    def add_gb_s(self) -> float:
        """What is added of the largest buffers, in GB/s."""
        return self.add[-1] / 1e9


def sizes_up_to(payload_bytes: int) -> list[int]:
    """Return the sizes to measure for payloads up to so many bytes: powers of 4, from 4 KiB to at most 64 MiB."""
    sizes = [SMALLEST_BYTES]
    while sizes[-1] < min(payload_bytes, LARGEST_BYTES):
        sizes.append(4 * sizes[-1])
    return sizes


def measure_rates(
    sizes: Sequence[int], seconds: float = 0.5, start: float | None = None, buffers: Buffers | None = None
) -> Samples:
    """Measure how fast this process copies and adds, while others of its team do the same.

    The time is cut into windows of equal length, one for each size, copies and additions, twice over. All
    processes are in the same window at the same time, and what each gets done there is divided by the window's
    whole length, also what it had to wait for a core. So their rates add up to the machine's, even if there are
    more processes than cores.

    Args:
        sizes: of the buffers, in bytes, ascending, each a multiple of 4.
        seconds: that all windows take together.
        start: when the first window begins, in seconds of time.perf_counter(), which all processes of a host
            share; now unless given. Who comes late, misses the first windows.
        buffers: what new_buffers() made of the largest size; it takes long, so before a common start make them.
    """
    a, b = buffers or new_buffers(max(sizes))
    stretches = [_stretches(a, b, size) for size in sizes]
    windows = list(itertools.product(range(_ROUNDS), (np.copyto, _add), stretches))
    window_s = seconds / len(windows)
    start = time.perf_counter() if start is None else start
    time.sleep(max(0.0, start - time.perf_counter()))
    found = []
    for i, (_, operation, work) in enumerate(windows):
        found.append(_rate(operation, work, start + i * window_s, start + (i + 1) * window_s))
    rows = [found[i : i + len(sizes)] for i in range(0, len(found), len(sizes))]
    return Samples(list(sizes), copy=rows[0::2], add=rows[1::2])


def combine(team: Sequence[Samples]) -> Rates:
    """Add up what the processes of a team found, or take what one found alone: the better round of each size.

    Raises:
        ValueError: there are none, or they measured different sizes.
    """
    if not team or any(samples.sizes != team[0].sizes for samples in team):
        raise ValueError("rates can be combined of processes that measured the same sizes")
    return Rates(
        team[0].sizes,
        _best_sums([samples.copy for samples in team]),
        _best_sums([samples.add for samples in team]),
    )


def _best_sums(by_process: list[list[list[float]]]) -> list[float]:
    rounds = np.array(by_process).sum(axis=0)  # of all processes in the same window
    best = rounds.max(axis=0)
    return [float(rate) for rate in np.maximum.accumulate(best[::-1])[::-1]]


def new_buffers(size: int) -> Buffers:
    """Return two buffers of so many bytes, all of whose memory is there."""
    # Not zeros(): memory that was never written to is the same page everywhere.
    memory = np.full(2 * (size + _LINE_BYTES) + _GAP_BYTES, 0, np.uint8)
    first = -memory.ctypes.data % _LINE_BYTES
    second = first + -(-size // _LINE_BYTES) * _LINE_BYTES + _GAP_BYTES
    return (
        memory[first : first + size].view(np.float32),
        memory[second : second + size].view(np.float32),
    )


def _stretches(a: Array, b: Array, size: int) -> list[Stretch]:
    """Cut the first `size` bytes of both buffers."""
    if size <= _PIECE_BYTES:
        times = max(1, _STRETCH_BYTES // size)
        return [([(a[: size // 4], b[: size // 4])] * times, times * size)]
    piece, count = _PIECE_BYTES // 4, size // 4
    ends = [(i, min(i + piece, count)) for i in range(0, count, piece)]
    return [([(a[i:end], b[i:end])], 4 * (end - i)) for i, end in ends]


def _rate(operation: Operation, stretches: list[Stretch], begin: float, end: float) -> float:
    """Work until `end`, and return the bytes per second since `begin`; of the last stretch what fits."""
    done = 0.0
    now = time.perf_counter()
    for pairs, nbytes in itertools.cycle(stretches):
        if now >= end:
            break
        for a, b in pairs:
            operation(a, b)
        before, now = now, time.perf_counter()
        done += nbytes if now <= end else nbytes * (end - before) / (now - before)
    return done / (end - begin)


def _add(a: Array, b: Array) -> None:
    np.add(a, b, a)

# SPDX-License-Identifier: Apache-2.0
"""One rank of a contestant: buffers, checks and timed calls. Subclasses say how a call is made."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from braid._bench.machine import bandwidth
from braid._bench.ranks.pattern import Bits, Pattern, Values, count_wrong, fill, poison
from braid._bench.workload import Workload, itemsize

Stamps = npt.NDArray[np.int64]
Message = Callable[[Any, int], object]  # sends or receives a buffer; the other rank

# More than last-level caches hold, or than one process gets of a shared one.
_FLUSH_BYTES = 128 << 20


@dataclass(frozen=True)
class Buffers:
    """Input and output of one rank, as the contestant's library knows them. In place they are, or share, one."""

    input: Any
    output: Any


class ContestantRank(ABC):
    """What the coordinator asks a rank to do, whoever the contestant is.

    Attributes:
        rank: this process, from 0.
        size: how many there are.
    """

    rank: int
    size: int
    _work: Workload
    _buffers: Buffers
    _call: Callable[[], object]

    # ---- what a contestant is

    @abstractmethod
    def empty(self, count: int, dtype: str) -> Any:
        """Return new memory for `count` elements."""

    @abstractmethod
    def bits(self, buffer: Any) -> Bits:
        """Return the memory as a NumPy array of unsigned numbers; complex elements as two. May be a copy."""

    def put(self, buffer: Any, bits: Bits) -> None:
        """Write back what bits() returned, where that was a copy."""
        del buffer, bits

    @abstractmethod
    def encode(self, values: Values, dtype: str) -> Bits:
        """Return whole numbers as elements of a dtype, seen as bits() does."""

    @abstractmethod
    def call_for(self, work: Workload, buffers: Buffers) -> Callable[[], object]:
        """Return what carries out one call; it is given nothing, so that only the call is timed."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait for the other ranks."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group."""

    def describe(self) -> dict[str, Any]:
        """Return ``algorithm`` and ``predicted_us`` of the workload, where the contestant knows."""
        return {}

    def about(self) -> str:
        """Return name and version of what is measured."""
        return ""

    # ---- what contestants have in common

    @property
    def neighbours(self) -> tuple[int, int]:
        """The ranks after and before this one, in a ring."""
        return (self.rank + 1) % self.size, (self.rank - 1) % self.size

    def ping_pong(self, send: Message, recv: Message, x: Any, out: Any) -> Callable[[], object]:
        """Return this rank's part of a message to rank 1 and back."""

        def ping() -> None:
            send(x, 1)
            recv(out, 1)

        def pong() -> None:
            recv(out, 0)
            send(out, 0)

        return (ping, pong, _nothing)[min(self.rank, 2)]

    # ---- what the coordinator asks

    def prepare(self, work: Workload) -> None:
        """Make the buffers of a workload; those of the last one go."""
        self._work = work
        self._pattern = Pattern(work, self.size, seed=0)
        self._buffers = Buffers(None, None)
        self._buffers = self._new_buffers()
        self._call = self.call_for(work, self._buffers)

    def check(self, seed: int) -> int:
        """Run once on fresh random data with a poisoned output; return the number of wrong elements."""
        self._pattern = Pattern(self._work, self.size, seed)
        self._fill(self._buffers)
        self.barrier()
        self._call()
        tolerance = int(self._work.op == "avg")
        bits = self.bits(self._buffers.output)
        return count_wrong(bits, self._pattern.outputs(self.rank), self._encode, tolerance)

    def block(self, calls: int, warmups: int) -> tuple[Stamps, Stamps]:
        """Time `calls` calls, between some that are not; return when each began and ended, in ns.

        The clock is the machine's monotonic one, the same in all processes. A rank that has no part in the
        operation returns nothing.
        """
        self._fill(self._buffers)
        starts, ends = self._cold_calls(calls) if self._work.cold else self._calls_in_a_row(calls, warmups)
        if self._work.collective == "ping_pong" and self.rank > 1:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return starts, ends

    def warm_up(self, calls: int) -> None:
        """Get ready for calls_at()."""
        self._fill(self._buffers)
        for _ in range(calls):
            self.barrier()
            self._call()

    def calls_at(self, calls: int, begin_ns: int, window_ns: int) -> tuple[Stamps, Stamps]:
        """Time calls of which one is to begin every `window_ns`, on all ranks; return as block() does."""
        call, now, rest = self._call, time.perf_counter_ns, os.sched_yield
        starts, ends = [0] * calls, [0] * calls
        for i in range(calls):
            at = begin_ns + i * window_ns
            while now() < at:
                rest()
            starts[i] = now()
            call()
            ends[i] = now()
        return np.array(starts, np.int64), np.array(ends, np.int64)

    def prepare_rates(self, largest: int) -> None:
        """Allocate what rates() needs, which takes long."""
        self._buffers = Buffers(*bandwidth.new_buffers(largest))

    def rates(self, sizes: list[int], seconds: float, start_s: float) -> bandwidth.Samples:
        """Measure this rank's share of the machine's memory bandwidth, at the same time as the others."""
        buffers = self._buffers.input, self._buffers.output
        self.release()
        return bandwidth.measure_rates(sizes, seconds, start_s, buffers)

    def rates_alone(self, sizes: list[int], seconds: float) -> bandwidth.Samples | None:
        """Measure what rank 0 gets while the others wait; None on those."""
        return bandwidth.measure_rates(sizes, seconds) if self.rank == 0 else None

    def release(self) -> None:
        """Let go of the buffers."""
        self._buffers = Buffers(None, None)
        self._call = _nothing

    # ---- how

    def _calls_in_a_row(self, calls: int, warmups: int) -> tuple[Stamps, Stamps]:
        call, now = self._call, time.perf_counter_ns
        stamps = [0] * (calls + 1)
        self.barrier()
        for _ in range(warmups):
            call()
        stamps[0] = now()
        for i in range(1, calls + 1):
            call()
            stamps[i] = now()
        for _ in range(warmups):  # where ranks share cores, who ends early must not leave his to the others
            call()
        array = np.array(stamps, np.int64)
        return array[:-1], array[1:]

    def _cold_calls(self, calls: int) -> tuple[Stamps, Stamps]:
        starts, ends = np.zeros(calls, np.int64), np.zeros(calls, np.int64)
        for i in range(calls):
            buffers = self._new_buffers()
            self._fill_input(buffers)
            call = self.call_for(self._work, buffers)
            _empty_caches()
            self.barrier()
            starts[i] = time.perf_counter_ns()
            call()
            ends[i] = time.perf_counter_ns()
        return starts, ends

    def _new_buffers(self) -> Buffers:
        work, kind, mine = self._work, self._work.kind, self.rank == 0 or not self._work.kind.rooted
        block = work.count // self.size
        if work.in_place and not kind.blocks_out:
            whole = self.empty(work.count, work.dtype)
            return Buffers(whole, whole)
        output = self.empty(
            block if kind.blocks_in and not kind.blocks_out else work.count if mine else 0, work.dtype
        )
        if work.in_place:
            return Buffers(output[self.rank * block : (self.rank + 1) * block], output)
        has_input = mine or not kind.blocks_in  # a scatter's input is the root's alone
        count = block if kind.blocks_out and not kind.blocks_in else work.count if has_input else 0
        return Buffers(self.empty(count, work.dtype), output)

    def _fill(self, buffers: Buffers) -> None:
        bits = self.bits(buffers.output)
        poison(bits)
        self.put(buffers.output, bits)
        self._fill_input(buffers)

    def _fill_input(self, buffers: Buffers) -> None:
        bits = self.bits(buffers.input)
        fill(bits, self._pattern.inputs(self.rank), self._encode)
        self.put(buffers.input, bits)

    def _encode(self, values: Values) -> Bits:
        return self.encode(values, self._work.dtype)


def unsigned(dtype: str) -> np.dtype[Any]:
    """Return the dtype of the unsigned numbers that bits() gives."""
    width = itemsize(dtype) // (2 if dtype.startswith("complex") else 1)
    return np.dtype(f"u{width}")


def _empty_caches() -> None:
    np.empty(_FLUSH_BYTES, np.uint8).fill(1)


def _nothing() -> None:
    pass

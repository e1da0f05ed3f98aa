# SPDX-License-Identifier: Apache-2.0
"""PowerSGD: a matrix travels as two thin factors (Vogels, Karimireddy, Jaggi 2019), with error feedback.

M (gradient + error), Q from last time     P = mean(M Q), made orthonormal     Q = mean(M^T P)
everybody takes P Q^T for the mean gradient, and keeps M - P Q^T as its error.

Both means are exact all_reduces of few bytes. P and Q are the same bits on all ranks, and so are what is made of
them, whatever the ranks' processors and numbers of threads: csrc/low_rank computes it all.

Gradients of 16 bits are read as they are; errors and factors are float32. What everybody takes is P Q^T rounded to
16 bits, and the error is what M has more than that.
"""

import os
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from braid import _core
from braid.compression.carried import Carried
from braid.compression.layout import Part

LEAST_RATE = 2.0  # a matrix that does not shrink by this factor is sent as it is
_TOO_LARGE = 2.0**120  # from here on sums of products might be infinite
_ELEMENTS_PER_THREAD = 1 << 18  # a pass over fewer is over before another thread has woken up
# Of the square matrix that shows how fast this processor is: with its error it has 32 MiB, more than most caches.
_MEASURED_EXTENT = 2048
_REPEATS = 3


def matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Return rows and columns of a parameter seen as a matrix: all dimensions but the first are one."""
    rows = shape[0] if shape else 1
    elements = 1
    for extent in shape:
        elements *= extent
    return rows, elements // rows if rows else 0


def is_worth(shape: Sequence[int], rank: int, dtype: torch.dtype = torch.float32) -> bool:
    """Tell whether the factors, always of float32, are enough smaller than a matrix of a dtype."""
    rows, columns = matrix_shape(shape)
    return len(shape) >= 2 and 4 * (rows + columns) * rank * LEAST_RATE < dtype.itemsize * rows * columns


def factor_elements(shape: Sequence[int], rank: int) -> tuple[int, int]:
    """Return the elements of P and of Q."""
    rows, columns = matrix_shape(shape)
    return rows * rank, columns * rank


@cache
def element_s(rank: int, dtype: torch.dtype) -> float:
    """Measure, once in a process, the seconds that a step computes for an element of a large matrix.

    Where ranks share processors, and measure at the same time, that is in it: what counts is the mean.
    """
    rows = columns = _MEASURED_EXTENT
    product = _core.LowRank(rows, columns, rank, _name_of(dtype))
    ours = torch.Generator("cpu").manual_seed(0)  # the user's numbers are not ours to draw
    floats = {"dtype": torch.float32, "device": "cpu"}
    gradient = _array_of(torch.randn(rows * columns, generator=ours, **floats).to(dtype))
    matrix = torch.zeros(rows * columns, **floats).numpy()
    q = torch.randn(rank, columns, generator=ours, **floats).numpy()
    sent, p = torch.zeros(2, rank, rows, **floats).numpy()
    begin = 0.0
    for repeat in range(1 + _REPEATS):
        if repeat == 1:  # memory has been touched
            begin = time.perf_counter()
        _in_ranges(rows, rows * columns, product.project, gradient, matrix, sent, q, p)
        product.orthonormalize(p)
        _in_ranges(columns, rows * columns, product.gather, matrix, p, q)
        _in_ranges(rows, rows * columns, product.rebuild, p, q, gradient)
        sent, p = p, sent
    return (time.perf_counter() - begin) / (_REPEATS * rows * columns)


@dataclass(frozen=True)
class Sent:
    """The P of what was sent, and what its product with Q was rounded to."""

    p: Tensor
    dtype: torch.dtype = torch.float32


class Factors:
    """P and Q of every matrix from its last step: Q to begin the next with, P with it to know what was sent.

    What was sent is still in the matrix that is carried as its error; the next step subtracts it when it reads
    that matrix anyway. P is rank x rows, Q is rank x columns.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.q: dict[str, Tensor] = {}
        self.sent: dict[str, Sent] = {}  # none where the error is what it should be

    def begin(
        self, name: str, shape: tuple[int, int], rank: int, matrix: Tensor, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor | None]:
        """Return Q, and P if its product with Q is to be subtracted; from now on it counts as subtracted.

        The first Q is random, and the same on all ranks. `dtype` is that of the gradient.
        """
        q, sent = self.q.get(name), self.sent.pop(name, None)
        is_fit = q is not None and q.shape == (rank, shape[1])
        if q is not None and sent is not None and not (is_fit and sent.dtype == dtype):
            _settle(matrix, sent, q)
            sent = None
        if q is None or not is_fit:
            q = torch.empty(rank, shape[1])
            _core.draw_uniform(zlib.crc32(name.encode()), q.numpy())
        return q, None if sent is None else sent.p

    def settle(self, errors: dict[str, Tensor]) -> None:
        """Subtract what was sent from a copy of what is carried."""
        for name, sent in self.sent.items():
            _settle(errors[name], sent, self.q[name])

    def drop(self, names: Iterable[str]) -> None:
        """Forget these matrices, whose errors are dropped, too."""
        for name in names:
            self.q.pop(name, None)
            self.sent.pop(name, None)

    def clear(self) -> None:
        """Forget everything."""
        self.q.clear()
        self.sent.clear()


class Round:
    """The matrices of one bucket in one step. Every call of advance() starts the next operation.

    advance() is called by the thread that runs the hooks, in the order of the hooks: were operations started from
    callbacks, ranks could disagree about their order.
    """

    def __init__(
        self,
        part: Part,
        rank: int,
        buffer: Tensor,
        errors: Carried,
        factors: Factors,
        group: dist.ProcessGroup | None,
    ) -> None:
        """Start the first operation; `buffer` has the gradients, of 32 or 16 bits, and gets their means."""
        pieces = part.pieces
        self._group = group
        self._factors = factors
        self._names = [piece.name for piece in pieces]
        shapes = [matrix_shape(piece.shape) for piece in pieces]
        self._products = [_core.LowRank(rows, columns, rank, _name_of(buffer.dtype)) for rows, columns in shapes]
        self._gradients = [buffer.narrow(0, piece.offset, piece.elements) for piece in pieces]
        sizes = [piece.elements for piece in pieces]
        self._matrices = errors.flat(self._names, sizes, buffer.device).split(sizes)
        self._buffer, self._rider = buffer, part.rider
        self._p = _Components([rows for rows, _ in shapes], rank, part.all_elements - part.elements)
        if part.rider:
            self._p.rest.copy_(part.rider.take(buffer))
        self._q = _Components([columns for _, columns in shapes], rank)
        self.future: torch.futures.Future[None] = torch.futures.Future()
        self._stages = [self._second, self._third]
        for k, shape in enumerate(shapes):
            q, sent = factors.begin(self._names[k], shape, rank, self._matrices[k], buffer.dtype)
            _in_ranges(
                shape[0],
                sizes[k],
                self._products[k].project,
                _array_of(self._gradients[k]),
                self._matrices[k].numpy(),
                None if sent is None else sent.numpy(),
                q.numpy(),
                self._p.of[k].numpy(),
            )
        self._work = self._mean(self._p.flat)

    @property
    def stages_left(self) -> int:
        """How often to advance until the mean gradients are in the buffer."""
        return len(self._stages)

    def advance(self) -> None:
        """Wait for the operation that is under way and start the next, or write the result."""
        self._stages.pop(0)()

    def _second(self) -> None:
        self._work.wait()
        if self._rider:
            self._rider.fill(self._p.rest, self._buffer)
        self._is_finite = []
        for product, matrix, p, q in zip(self._products, self._matrices, self._p.of, self._q.of, strict=True):
            # Where it is False p stays as it is, so q is of no use either. All ranks see that.
            self._is_finite.append(product.orthonormalize(p.numpy()))
            _in_ranges(q.shape[1], matrix.numel(), product.gather, matrix.numpy(), p.numpy(), q.numpy())
        self._work = self._mean(self._q.flat)

    def _third(self) -> None:
        self._work.wait()
        for k, (name, p, q) in enumerate(zip(self._names, self._p.of, self._q.of, strict=True)):
            gradient, matrix = self._gradients[k], self._matrices[k]
            # The same on all ranks, for the factors are. False for a NaN, too.
            if self._is_finite[k] and bool(q.abs().amax() < _TOO_LARGE):
                _in_ranges(
                    p.shape[1],
                    matrix.numel(),
                    self._products[k].rebuild,
                    p.numpy(),
                    q.numpy(),
                    _array_of(gradient),
                )
                self._factors.sent[name] = Sent(p.clone() if self._rider else p, gradient.dtype)
                self._factors.q[name] = q
                continue
            # Somebody's gradient is not finite. Everybody sees that, and goes on next time with the old error.
            matrix.sub_(gradient).nan_to_num_(0.0, 0.0, 0.0)
            gradient.fill_(torch.nan)
        self.future.set_result(None)

    def _mean(self, flat: Tensor) -> dist.Work:
        work = dist.all_reduce(flat, op=dist.ReduceOp.AVG, group=self._group, async_op=True)
        assert work is not None
        return work


class _Components:
    """One factor of each of several matrices, end to end, and what else goes with them: one operation for all."""

    def __init__(self, extents: Sequence[int], rank: int, rest: int = 0) -> None:
        sizes = [rank * extent for extent in extents]
        self.flat = torch.empty(sum(sizes) + rest)
        *factors, self.rest = self.flat.split([*sizes, rest])
        self.of = [factor.view(rank, -1) for factor in factors]


def _settle(matrix: Tensor, sent: Sent, q: Tensor) -> None:
    rank, rows = sent.p.shape
    product = _core.LowRank(rows, q.shape[1], rank, _name_of(sent.dtype))
    product.settle(sent.p.numpy(), q.numpy(), matrix.numpy(), 0, rows)


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _array_of(gradient: Tensor) -> Any:
    """Return a gradient's memory as NumPy takes it, which knows no bfloat16."""
    return (gradient if gradient.dtype == torch.float32 else gradient.view(torch.int16)).numpy()


def _in_ranges(extent: int, elements: int, call: Callable[..., None], *arrays: Any) -> None:
    """Carry out a call for 0 to extent, on as many threads as torch may use: the bits are the same."""
    threads = max(1, min(torch.get_num_threads(), elements // _ELEMENTS_PER_THREAD, extent))
    ends = [extent * k // threads for k in range(threads + 1)]
    begun = [_pool().submit(call, *arrays, *ends[k : k + 2]) for k in range(1, threads)]
    call(*arrays, ends[0], ends[1])
    for one in begun:
        one.result()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="braid-low-rank")


os.register_at_fork(after_in_child=_pool.cache_clear)  # its threads are not there

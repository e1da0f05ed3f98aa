# SPDX-License-Identifier: Apache-2.0
"""PowerSGD: a matrix travels as two thin factors (Vogels, Karimireddy, Jaggi 2019), with error feedback.

M (gradient + error), Q from last time     P = mean(M Q), made orthonormal     Q = mean(M^T P)
every rank takes P Q^T as the mean gradient, and keeps M - P Q^T as its error.

Both means are exact all_reduces of few bytes. All ranks have the same bits of P, Q and their product, on all
processors and with any number of threads: csrc/low_rank computes them.

Gradients of 16 bits are read as they are; errors and factors are float32. The mean gradient is then P Q^T rounded
to 16 bits. The error is the difference between M and the rounded product.
"""

import os
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from braid import _core
from braid.compression.error_feedback import ErrorFeedbackStore
from braid.compression.layout import Part

LEAST_RATE = 2.0  # a matrix whose factors are not this many times smaller is sent exact
_TOO_LARGE = 2.0**120  # from here on sums of products might be infinite
_ELEMENTS_PER_THREAD = 1 << 18  # one thread passes over fewer elements before a second one wakes up
# Rows and columns of the matrix that element_s() measures. It and its error are 32 MiB, more than most caches.
_MEASURED_EXTENT = 2048
_REPEATS = 3


def matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Return rows and columns of a parameter as a matrix: all dimensions after the first become one."""
    rows = shape[0] if shape else 1
    elements = 1
    for extent in shape:
        elements *= extent
    return rows, elements // rows if rows else 0


def is_worth(shape: Sequence[int], rank: int, dtype: torch.dtype = torch.float32) -> bool:
    """Return true if the float32 factors are at least LEAST_RATE times smaller than a matrix of this dtype."""
    rows, columns = matrix_shape(shape)
    return len(shape) >= 2 and 4 * (rows + columns) * rank * LEAST_RATE < dtype.itemsize * rows * columns


def factor_elements(shape: Sequence[int], rank: int) -> tuple[int, int]:
    """Return the number of elements of P and of Q."""
    rows, columns = matrix_shape(shape)
    return rows * rank, columns * rank


@cache
def element_s(rank: int, dtype: torch.dtype) -> float:
    """Measure the seconds per element that a step computes for a large matrix. A process measures once.

    Ranks that share processors measure at the same time, so the mean includes the sharing.
    """
    rows = columns = _MEASURED_EXTENT
    product = _core.LowRank(rows, columns, rank, _name_of(dtype))
    ours = torch.Generator("cpu").manual_seed(0)  # torch's own generator belongs to the user
    floats = {"dtype": torch.float32, "device": "cpu"}
    gradient = _array_of(torch.randn(rows * columns, generator=ours, **floats).to(dtype))
    matrix = torch.zeros(rows * columns, **floats).numpy()
    q = torch.randn(rank, columns, generator=ours, **floats).numpy()
    sent, p = torch.zeros(2, rank, rows, **floats).numpy()
    begin = 0.0
    for repeat in range(1 + _REPEATS):
        if repeat == 1:  # the first pass touched the memory
            begin = time.perf_counter()
        _in_ranges(rows, rows * columns, product.project, gradient, matrix, sent, q, p)
        product.orthonormalize(p)
        _in_ranges(columns, rows * columns, product.gather, matrix, p, q)
        _in_ranges(rows, rows * columns, product.rebuild, p, q, gradient)
        sent, p = p, sent
    return (time.perf_counter() - begin) / (_REPEATS * rows * columns)


@dataclass(frozen=True)
class Sent:
    """The P of the last step, and the dtype to which its product with Q was rounded."""

    p: Tensor
    dtype: torch.dtype = torch.float32


class Factors:
    """P and Q of every matrix from its last step. P is rank x rows, Q is rank x columns.

    The next step begins with Q. The product of P and Q was sent. The stored error still contains the product: the
    next step subtracts it while it reads the error.
    """

    def __init__(self) -> None:
        """Make an empty table."""
        self.q: dict[str, Tensor] = {}
        self.sent: dict[str, Sent] = {}  # by name; missing if the error is complete

    def begin(
        self, name: str, shape: tuple[int, int], rank: int, matrix: Tensor, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor | None]:
        """Return Q, and P if the caller must subtract their product from the error; else None.

        The product counts as subtracted from now on. The first Q is random, and the same on all ranks. `dtype` is
        the gradient's.
        """
        q, sent = self.q.get(name), self.sent.pop(name, None)
        is_fit = q is not None and q.shape == (rank, shape[1])
        if q is not None and sent is not None and not (is_fit and sent.dtype == dtype):
            _settle(matrix, sent, q)
            sent = None
        if q is None or not is_fit:
            q = torch.empty(rank, shape[1], dtype=torch.float32)
            _core.draw_uniform(zlib.crc32(name.encode()), q.numpy())
        return q, None if sent is None else sent.p

    def settle(self, errors: dict[str, Tensor]) -> None:
        """Subtract the sent products from these copies of the stored errors."""
        for name, sent in self.sent.items():
            _settle(errors[name], sent, self.q[name])

    def drop(self, names: Iterable[str]) -> None:
        """Forget these matrices. The caller drops their errors."""
        for name in names:
            self.q.pop(name, None)
            self.sent.pop(name, None)

    def clear(self) -> None:
        """Forget all matrices."""
        self.q.clear()
        self.sent.clear()


class Matrices:
    """The matrices of one part of a bucket in one step: the computation before, between and after the means."""

    def __init__(
        self, part: Part, rank: int, buffer: Tensor, errors: ErrorFeedbackStore, factors: Factors
    ) -> None:
        """Compute the first factors. `buffer` has the gradients, of 32 or 16 bits."""
        self._part, self._buffer, self._factors = part, buffer, factors
        shapes = [matrix_shape(piece.shape) for piece in part.pieces]
        self._p = _Components([rows for rows, _ in shapes], rank, part.all_elements - part.elements)
        self._q = _Components([columns for _, columns in shapes], rank)
        if part.rider:
            self._p.rest.copy_(part.rider.take(buffer))
        matrices = errors.flat(part.names, part.sizes, buffer.device).split_with_sizes(list(part.sizes))
        self._all: list[_Matrix] = []
        for piece, matrix, (rows, columns), p, q in zip(
            part.pieces, matrices, shapes, self._p.of, self._q.of, strict=True
        ):
            one = _Matrix(
                _core.LowRank(rows, columns, rank, _name_of(buffer.dtype)),
                _array_of(buffer.narrow(0, piece.offset, piece.elements)),
                matrix.numpy(),
                p.numpy(),
                q.numpy(),
            )
            self._all.append(one)
            old_q, sent = factors.begin(piece.name, (rows, columns), rank, matrix, buffer.dtype)
            one.project(None if sent is None else sent.numpy(), old_q.numpy())

    @property
    def first(self) -> Tensor:
        """All P, and the rider: the vector that the first mean replaces."""
        return self._p.flat

    @property
    def second(self) -> Tensor:
        """All Q, after gather(): the vector that the second mean replaces."""
        return self._q.flat

    def gather(self) -> None:
        """Compute the second factors from the mean of the first factors."""
        if self._part.rider:
            self._part.rider.fill(self._p.rest, self._buffer)
        for one in self._all:
            one.gather()

    def rebuild(self) -> None:
        """Write the mean gradients into the buffer, from the mean of the second factors."""
        for piece, one, p, q in zip(self._part.pieces, self._all, self._p.of, self._q.of, strict=True):
            if one.rebuild():
                self._factors.sent[piece.name] = Sent(p.clone() if self._part.rider else p, self._buffer.dtype)
                self._factors.q[piece.name] = q
                continue
            # A rank's gradient is not finite. All ranks see that, and keep the old error for the next step.
            gradient = self._buffer.narrow(0, piece.offset, piece.elements)
            torch.from_numpy(one.matrix).sub_(gradient).nan_to_num_(0.0, 0.0, 0.0)
            gradient.fill_(torch.nan)


@dataclass
class _Matrix:
    """One matrix, as arrays for the core: the gradient, the gradient with the error, and both factors."""

    product: Any  # _core.LowRank
    gradient: Any
    matrix: Any
    p: Any
    q: Any
    is_finite: bool = False

    def project(self, sent: Any, old_q: Any) -> None:
        arrays = (self.gradient, self.matrix, sent, old_q, self.p)
        _in_ranges(self.p.shape[1], self.matrix.size, self.product.project, *arrays)

    def gather(self) -> None:
        # If the result is False, p is unchanged and q is useless. The result is the same on all ranks.
        self.is_finite = self.product.orthonormalize(self.p)
        _in_ranges(self.q.shape[1], self.matrix.size, self.product.gather, self.matrix, self.p, self.q)

    def rebuild(self) -> bool:
        """Write the product of the factors, if both are finite. All ranks decide alike: the factors are equal."""
        if not (self.is_finite and np.abs(self.q).max() < _TOO_LARGE):  # false for NaN, too
            return False
        _in_ranges(self.p.shape[1], self.matrix.size, self.product.rebuild, self.p, self.q, self.gradient)
        return True


class _Components:
    """One factor of each matrix, and the rider, end to end in one vector for one operation."""

    def __init__(self, extents: Sequence[int], rank: int, rest: int = 0) -> None:
        sizes = [rank * extent for extent in extents]
        self.flat = torch.empty(sum(sizes) + rest, dtype=torch.float32)
        *factors, self.rest = self.flat.split_with_sizes([*sizes, rest])
        self.of = [factor.view(rank, -1) for factor in factors]


def _settle(matrix: Tensor, sent: Sent, q: Tensor) -> None:
    rank, rows = sent.p.shape
    product = _core.LowRank(rows, q.shape[1], rank, _name_of(sent.dtype))
    product.settle(sent.p.numpy(), q.numpy(), matrix.numpy(), 0, rows)


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _array_of(gradient: Tensor) -> Any:
    """Return a gradient's memory as a NumPy array. Gradients of 16 bits become int16: NumPy has no bfloat16."""
    return (gradient if gradient.dtype == torch.float32 else gradient.view(torch.int16)).numpy()


def _in_ranges(extent: int, elements: int, call: Callable[..., None], *arrays: Any) -> None:
    """Call with the range from 0 to extent, cut in parts for torch's threads. The cuts do not change any bit."""
    threads = max(1, min(torch.get_num_threads(), elements // _ELEMENTS_PER_THREAD, extent))
    ends = [extent * k // threads for k in range(threads + 1)]
    begun = [_pool().submit(call, *arrays, *ends[k : k + 2]) for k in range(1, threads)]
    call(*arrays, ends[0], ends[1])
    for one in begun:
        one.result()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="braid-low-rank")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked child has none of the pool's threads

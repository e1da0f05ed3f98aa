# SPDX-License-Identifier: Apache-2.0
"""PowerSGD: a matrix travels as two thin factors (Vogels, Karimireddy, Jaggi 2019), with error feedback.

M (gradient + error), Q from last time     P = mean(M Q), made orthonormal     Q = mean(M^T P)
everybody takes P Q^T for the mean gradient, and keeps M - P Q^T as its error.

Both means are exact all_reduces of few bytes. P and Q are the same bits on all ranks, and so are what is made of
them, as long as the ranks' machines do arithmetic alike: AutoState leaves matrices exact where they may not.
"""

import zlib
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from braid.compression.carried import Carried
from braid.compression.layout import Piece

LEAST_RATE = 2.0  # a matrix that does not shrink by this factor is sent as it is


def matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Return rows and columns of a parameter seen as a matrix: all dimensions but the first are one."""
    rows = shape[0] if shape else 1
    elements = 1
    for extent in shape:
        elements *= extent
    return rows, elements // rows if rows else 0


def is_worth(shape: Sequence[int], rank: int) -> bool:
    """Tell whether the factors are enough smaller than the matrix."""
    rows, columns = matrix_shape(shape)
    return len(shape) >= 2 and (rows + columns) * rank * LEAST_RATE < rows * columns


def factor_elements(shape: Sequence[int], rank: int) -> tuple[int, int]:
    """Return the elements of P and of Q."""
    rows, columns = matrix_shape(shape)
    return rows * rank, columns * rank


class WarmFactors:
    """Q of every matrix, from its last step: the next one begins where the last ended."""

    def __init__(self) -> None:
        """Begin with none."""
        self.by_name: dict[str, Tensor] = {}

    def get(self, name: str, columns: int, rank: int, device: torch.device) -> Tensor:
        """Return Q; the first one is random, and the same on all ranks."""
        found = self.by_name.get(name)
        if found is None or found.shape != (columns, rank):
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            found = torch.randn(columns, rank, generator=generator)
        self.by_name[name] = found = found.to(device)
        return found


class Round:
    """The matrices of one bucket in one step. Every call of advance() starts the next operation.

    advance() is called by the thread that runs the hooks, in the order of the hooks: were operations started from
    callbacks, ranks could disagree about their order.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        rank: int,
        buffer: Tensor,
        errors: Carried,
        warm: WarmFactors,
        group: dist.ProcessGroup | None,
    ) -> None:
        """Start the first operation; `buffer` has the gradients and gets their means."""
        self._group = group
        self._warm = warm
        # Matrices of one shape next to each other, to be made orthonormal in one batch.
        self._pieces = sorted(pieces, key=lambda piece: (matrix_shape(piece.shape), piece.name))
        self._shapes = [matrix_shape(piece.shape) for piece in self._pieces]
        self._rank = rank
        views = [buffer.narrow(0, piece.offset, piece.elements) for piece in self._pieces]
        self._gradients = [view.view(shape) for view, shape in zip(views, self._shapes, strict=True)]
        names, sizes = [piece.name for piece in self._pieces], [piece.elements for piece in self._pieces]
        error = errors.flat(names, sizes, buffer.device)
        parts = error.split(sizes)
        self._matrices = [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]
        for matrix, gradient in zip(self._matrices, self._gradients, strict=True):
            matrix.add_(gradient)
        self.future: torch.futures.Future[None] = torch.futures.Future()
        self._stages = [self._second, self._third]
        self._first()

    @property
    def is_done(self) -> bool:
        """Whether the mean gradients are in the buffer."""
        return not self._stages

    def advance(self) -> None:
        """Wait for the operation that is under way and start the next, or write the result."""
        self._stages.pop(0)()

    def _first(self) -> None:
        self._p, self._p_views = self._factors([rows for rows, _ in self._shapes])
        for piece, (_, columns), matrix, p in zip(
            self._pieces, self._shapes, self._matrices, self._p_views, strict=True
        ):
            torch.mm(matrix, self._warm.get(piece.name, columns, self._rank, matrix.device), out=p)
        self._work = self._mean(self._p)

    def _second(self) -> None:
        self._work.wait()
        self._is_finite = [bool(torch.isfinite(p).all()) for p in self._p_views]
        self._make_orthonormal()
        self._q, self._q_views = self._factors([columns for _, columns in self._shapes])
        for matrix, p, q in zip(self._matrices, self._p_views, self._q_views, strict=True):
            torch.mm(matrix.T, p, out=q)
        self._work = self._mean(self._q)

    def _third(self) -> None:
        self._work.wait()
        for k, (piece, matrix, gradient) in enumerate(
            zip(self._pieces, self._matrices, self._gradients, strict=True)
        ):
            p, q = self._p_views[k], self._q_views[k]
            # The same on all ranks, for the factors are.
            if self._is_finite[k] and bool(torch.isfinite(q).all()):
                torch.mm(p, q.T, out=gradient)
                matrix.sub_(gradient)
                self._warm.by_name[piece.name] = q.clone()
                continue
            # Somebody's gradient is not finite. Everybody sees that, and goes on next time with the old error.
            matrix.sub_(gradient).nan_to_num_(0.0, 0.0, 0.0)
            gradient.fill_(torch.nan)
        self.future.set_result(None)

    def _factors(self, extents: Sequence[int]) -> tuple[Tensor, list[Tensor]]:
        sizes = [extent * self._rank for extent in extents]
        flat = self._matrices[0].new_empty(sum(sizes))
        views = flat.split(sizes)
        return flat, [view.view(extent, self._rank) for view, extent in zip(views, extents, strict=True)]

    def _mean(self, flat: Tensor) -> dist.Work:
        work = dist.all_reduce(flat, op=dist.ReduceOp.AVG, group=self._group, async_op=True)
        assert work is not None
        return work

    def _make_orthonormal(self) -> None:
        begin = offset = 0
        while begin < len(self._shapes):
            rows = self._shapes[begin][0]
            end = begin
            while end < len(self._shapes) and self._shapes[end][0] == rows:
                end += 1
            length = (end - begin) * rows * self._rank
            batch = self._p.narrow(0, offset, length).view(end - begin, rows, self._rank)
            # Householder's reflections give full orthonormal columns even where P has lost rank, as after a
            # gradient of zero, so that a direction once lost is found again.
            batch.copy_(torch.linalg.qr(batch).Q)
            begin, offset = end, offset + length

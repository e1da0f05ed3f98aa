# SPDX-License-Identifier: Apache-2.0
"""How the gradients of one DDP bucket are grouped: what travels together, in place or packed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

# A run of this many elements is reduced where it lies; shorter ones of a codec are copied together. At 1 MiB a
# copy takes about as long as one more operation costs on a network.
LONG_ELEMENTS = 1 << 18


@dataclass(frozen=True)
class Piece:
    """The gradient of one parameter in the flat buffer of its bucket."""

    name: str
    offset: int
    shape: tuple[int, ...]
    elements: int
    dtype: torch.dtype = torch.float32

    @property
    def bytes(self) -> int:
        """Of the gradient, as it is."""
        return self.elements * int(self.dtype.itemsize)


@dataclass(frozen=True)
class Part:
    """Pieces of one codec that travel in one operation: a run of the buffer, or packed copies."""

    codec: str
    pieces: tuple[Piece, ...]
    in_place: bool
    _views: list[Tensor] = field(default_factory=list, compare=False, repr=False)  # of the buffer seen last

    @cached_property
    def elements(self) -> int:
        """Of all pieces together."""
        return sum(piece.elements for piece in self.pieces)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the parameters."""
        return tuple(piece.name for piece in self.pieces)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Of the parameters, in elements."""
        return tuple(piece.elements for piece in self.pieces)

    def take(self, buffer: Tensor) -> Tensor:
        """Return the pieces end to end: a view of the buffer, or a copy."""
        if self.in_place:
            return buffer.narrow(0, self.pieces[0].offset, self.elements)
        return torch.cat(self._views_of(buffer))

    def put(self, flat: Tensor, buffer: Tensor) -> None:
        """Bring what take() returned back to where it is from."""
        if self.in_place:
            return
        torch._foreach_copy_(self._views_of(buffer), flat.split(list(self.sizes)))

    def _views_of(self, buffer: Tensor) -> list[Tensor]:
        """Return the pieces where they lie: cut once, for that takes longer than to copy small ones."""
        views, first = self._views, self.pieces[0].offset * buffer.element_size()
        if not views or views[0].data_ptr() != buffer.data_ptr() + first:
            views = [buffer.narrow(0, piece.offset, piece.elements) for piece in self.pieces]
            self._views[:] = views
        return views


def parts_of(pieces: Sequence[Piece], codecs: Sequence[str]) -> list[Part]:
    """Group pieces, given in the order of their offsets, by codec.

    The order of parts follows from the arguments alone: all ranks start the same operations in the same order.
    """
    runs: list[tuple[str, list[Piece]]] = []
    for piece, codec in zip(pieces, codecs, strict=True):
        before = runs[-1] if runs else None
        if before and before[0] == codec and before[1][-1].offset + before[1][-1].elements == piece.offset:
            before[1].append(piece)
        else:
            runs.append((codec, [piece]))
    parts = []
    for codec in dict.fromkeys(codec for codec, _ in runs):
        own = [run for other, run in runs if other == codec]
        short = [run for run in own if sum(piece.elements for piece in run) < LONG_ELEMENTS]
        parts += [Part(codec, tuple(run), True) for run in own if run not in short]
        if short:
            parts.append(Part(codec, tuple(piece for run in short for piece in run), len(short) == 1))
    return parts

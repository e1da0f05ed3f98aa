# SPDX-License-Identifier: Apache-2.0
"""Groups the gradients of one DDP bucket by codec. One group is one operation, in place or on packed copies."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from braid.compression import codecs

# Runs of at least this many elements are reduced in place. Shorter runs of one codec are copied together. A copy
# of 1 MiB takes about as long as one more operation on a network.
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
        """The bytes of the gradient without a codec."""
        return self.elements * int(self.dtype.itemsize)


@dataclass(frozen=True)
class Part:
    """Pieces of one codec that one operation reduces: a run of the buffer, or packed copies.

    A short exact part is the rider of a low-rank part: it is appended to the low-rank part's first factors. Its
    own message would take about as long as the factors', because latency is most of the time.
    """

    codec: str
    pieces: tuple[Piece, ...]
    in_place: bool
    rider: "Part | None" = None
    _views: list[Tensor] = field(default_factory=list, compare=False, repr=False)  # of the last buffer

    @cached_property
    def elements(self) -> int:
        """The number of elements of all pieces, without the rider."""
        return sum(piece.elements for piece in self.pieces)

    @property
    def all_elements(self) -> int:
        """The number of elements of all pieces and the rider."""
        return self.elements + (self.rider.elements if self.rider else 0)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return tuple(piece.name for piece in self.pieces)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of elements of each parameter."""
        return tuple(piece.elements for piece in self.pieces)

    def take(self, buffer: Tensor) -> Tensor:
        """Return the pieces end to end: a view of the buffer, or a copy."""
        if self.in_place:
            return buffer.narrow(0, self.pieces[0].offset, self.elements)
        return torch.cat(self._views_of(buffer))

    def put(self, flat: Tensor, buffer: Tensor) -> None:
        """Copy the vector that take() returned back to its pieces."""
        if self.in_place:
            return
        torch._foreach_copy_(self._views_of(buffer), flat.split(list(self.sizes)))

    def fill(self, flat: Tensor, buffer: Tensor) -> None:
        """Copy the values of any vector into the pieces."""
        if self.in_place:
            self.take(buffer).copy_(flat)
        else:
            self.put(flat, buffer)

    def _views_of(self, buffer: Tensor) -> list[Tensor]:
        """Return views of the pieces. They are kept: to make a view takes longer than to copy a small piece."""
        views, first = self._views, self.pieces[0].offset * buffer.element_size()
        if not views or views[0].data_ptr() != buffer.data_ptr() + first:
            views = [buffer.narrow(0, piece.offset, piece.elements) for piece in self.pieces]
            self._views[:] = views
        return views


def parts_of(pieces: Sequence[Piece], chosen: Sequence[str]) -> list[Part]:
    """Group pieces by codec. The pieces are in the order of their offsets; `chosen` has one codec per piece.

    The order of parts depends only on the arguments. So all ranks start the same operations in the same order.
    """
    runs: list[tuple[str, list[Piece]]] = []
    for piece, codec in zip(pieces, chosen, strict=True):
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
    return _with_rider(parts)


def _with_rider(parts: list[Part]) -> list[Part]:
    rider = next((part for part in parts if _can_ride(part)), None)
    host = next((part for part in parts if codecs.low_rank(part.codec)), None)
    if rider is None or host is None:
        return parts
    return [replace(part, rider=rider) if part is host else part for part in parts if part is not rider]


def _can_ride(part: Part) -> bool:
    # Factors are float32, so a rider must be float32, too.
    is_short = part.elements < LONG_ELEMENTS and part.pieces[0].dtype == torch.float32
    return part.codec == codecs.EXACT and is_short

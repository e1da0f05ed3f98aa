# SPDX-License-Identifier: Apache-2.0
"""Fragments of a model: ranges of its packed vector that are exchanged at different times (streaming DiLoCo)."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from braid.strategies.packing import Entry


@dataclass(frozen=True)
class _Span:
    """Elements [low, high) of a tensor."""

    entry: Entry
    low: int
    high: int
    is_whole: bool

    @property
    def tensor(self) -> Tensor:
        return self.entry.tensor.detach()

    def view(self) -> Tensor:
        """Return these elements; a copy if the tensor is not contiguous and is cut."""
        return self.tensor if self.is_whole else self.tensor.reshape(-1)[self.low : self.high]


class Fragment:
    """Elements [begin, end) of the vector of all tensors, one after the other. A tensor may be cut.

    Vectors that the methods take or return are float32, of shape (elements,).
    """

    def __init__(self, entries: Sequence[Entry], begin: int, end: int) -> None:
        """Find the tensors that lie in the range, in whole or in part."""
        self.begin, self.end, self.elements = begin, end, end - begin
        self._spans: list[_Span] = []
        place = 0
        for entry in entries:
            low, high = max(begin, place), min(end, place + entry.tensor.numel())
            if low < high:
                is_whole = high - low == entry.tensor.numel()
                self._spans.append(_Span(entry, low - place, high - place, is_whole))
            place += entry.tensor.numel()
        self._is_exact = all(span.tensor.dtype == torch.float32 for span in self._spans)

    def views(self, vector: Tensor) -> list[Tensor]:
        """Return the part of a vector for each tensor: in the tensor's shape, or flat if the tensor is cut."""
        parts = vector[: self.elements].split([span.high - span.low for span in self._spans])
        return [
            part.view(span.tensor.shape) if span.is_whole else part
            for part, span in zip(parts, self._spans, strict=True)
        ]

    def read(self, into: Tensor) -> None:
        """Copy the tensors' values into a vector."""
        if self._spans:
            torch._foreach_copy_(self.views(into), [span.view() for span in self._spans])

    def write(self, values: Tensor) -> None:
        """Give the tensors the values of a vector."""
        if not self._spans:
            return
        views = self.views(values)
        torch._foreach_copy_([span.view() for span in self._spans], views)
        for span, view in zip(self._spans, views, strict=True):
            if not span.is_whole and not span.tensor.is_contiguous():  # the view was a copy
                flat = span.tensor.reshape(-1)
                flat[span.low : span.high] = view
                span.tensor.copy_(flat.view(span.tensor.shape))

    def shown(self, values: Tensor) -> Tensor:
        """Return what the tensors have after write(values): the same, unless they have 16 bits."""
        if self._is_exact:
            return values
        rounded = values.clone()
        for view, span in zip(self.views(rounded), self._spans, strict=True):
            view.copy_(view.to(span.tensor.dtype))
        return rounded


def sizes(parameters: int, count: int) -> list[int]:
    """Return how many of so many parameters each of `count` fragments has.

    Example:
        >>> sizes(7, 2)
        [3, 4]
    """
    ends = [parameters * number // count for number in range(count + 1)]
    return [end - begin for begin, end in itertools.pairwise(ends)]


def cut(entries: Sequence[Entry], parameters: int, count: int) -> list[Fragment]:
    """Return fragments of nearly equal numbers of parameters. The last one has what follows the parameters, too.

    Args:
        entries: all tensors, the parameters first.
        parameters: how many elements are parameters.
        count: how many fragments; at most as many as parameters.
    """
    ends = list(itertools.accumulate(sizes(parameters, count), initial=0))
    ends[-1] = sum(entry.tensor.numel() for entry in entries)
    return [Fragment(entries, begin, end) for begin, end in itertools.pairwise(ends)]

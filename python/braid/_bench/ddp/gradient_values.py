# SPDX-License-Identifier: Apache-2.0
"""Gradients whose average over all ranks is known, so that every element of every tensor can be checked."""

from collections.abc import Iterator

import torch

_PERIOD = 1021  # a prime, so that the pattern lines up with no shape and no chunk
_CHUNK = _PERIOD << 12  # elements that are checked at a time: a whole number of periods
_TOLERANCE = 1e-4  # relative: sums of float32 stay well below, neighbouring elements differ by ten times as much


def rank_factor(rank: int) -> int:
    """Return what a rank multiplies the pattern by: with squares, no rank can stand in for two others."""
    return 1 + rank * rank


def mean_factor(size: int) -> float:
    """Return the average of rank_factor() over all ranks."""
    return sum(rank_factor(rank) for rank in range(size)) / size


def fill(tensor: torch.Tensor, number: int, rank: int) -> None:
    """Write a rank's gradient of a dense parameter into a contiguous tensor.

    Args:
        tensor: float32, of any shape.
        number: which parameter it is; each has a pattern of its own.
        rank: whose gradient.
    """
    pattern = _pattern(number, min(tensor.numel(), _CHUNK)) * rank_factor(rank)
    for chunk in _chunks(tensor):
        chunk.copy_(pattern[: len(chunk)])


def rows(count: int, samples: int, number: int, rank: int) -> torch.Tensor:
    """Return the rows of an embedding table that a rank's samples look up: int64, uniform, with repetitions."""
    generator = torch.Generator().manual_seed(number * 100_003 + rank)
    return torch.randint(count, (samples,), generator=generator)


def row_values(samples: int, width: int, number: int, rank: int) -> torch.Tensor:
    """Return the gradient of each looked-up row: float32 of shape samples x width."""
    values = torch.empty(samples, width, dtype=torch.float32)
    fill(values, number, rank)
    return values


def count_wrong(gradient: torch.Tensor | None, parameter: torch.Tensor, number: int, size: int) -> int:
    """Count the elements of an averaged dense gradient that are not what they should be.

    Args:
        gradient: what the ranks agreed on, or None when nothing arrived: then all elements are wrong.
        parameter: what it is the gradient of.
        number: which parameter it is.
        size: number of ranks.
    """
    if gradient is None or gradient.shape != parameter.shape:
        return int(parameter.numel())
    expected = _pattern(number, min(parameter.numel(), _CHUNK)) * mean_factor(size)
    return sum(_count(chunk, expected[: len(chunk)]) for chunk in _chunks(gradient))


def count_wrong_rows(
    gradient: torch.Tensor | None, parameter: torch.Tensor, number: int, size: int, samples: int
) -> int:
    """Count the elements of an averaged sparse gradient that are not what they should be, rows of zeros included.

    Args:
        gradient: what the ranks agreed on, or None when nothing arrived.
        parameter: the table.
        number: which parameter it is.
        size: number of ranks.
        samples: rows that each rank looked up.
    """
    if gradient is None or gradient.shape != parameter.shape:
        return int(parameter.numel())
    expected = torch.zeros(parameter.shape, dtype=torch.float64)
    for rank in range(size):
        values = row_values(samples, parameter.shape[1], number, rank).double()
        expected.index_add_(0, rows(parameter.shape[0], samples, number, rank), values)
    return _count(gradient.to_dense(), expected / size)


def _pattern(number: int, elements: int) -> torch.Tensor:
    # Whole numbers from 1 to 1021: exact in float32, never zero.
    period = (torch.arange(_PERIOD) + 97 * number) % _PERIOD + 1
    return period.float().repeat(-(-elements // _PERIOD))[:elements]


def _chunks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    return iter(tensor.view(-1).split(_CHUNK))


def _count(values: torch.Tensor, expected: torch.Tensor) -> int:
    good = (values - expected).abs() <= expected.abs() * _TOLERANCE  # false for NaN
    return int(values.numel() - good.sum())

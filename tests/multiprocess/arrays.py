# SPDX-License-Identifier: Apache-2.0
"""What ranks put in, and what NumPy says must come out, without any communication."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import braid
import numpy as np
import numpy.typing as npt
from braid import _core
from ranks import Rank
from slowness import limit

Array = npt.NDArray[Any]


def join(rank: Rank, **options: Any) -> braid.Communicator:
    """Make a communicator of all ranks of the test."""
    arguments = {"timeout_s": limit(30.0), **options}
    return braid.Communicator(f"file://{rank.folder}/meet", rank=rank.rank, size=rank.size, **arguments)


def known_dtypes() -> list[np.dtype[Any]]:
    """Return those dtypes of the core that NumPy has, too."""
    found = []
    for name in _core.dtypes():
        with suppress(TypeError):  # bfloat16 needs ml_dtypes
            found.append(np.dtype(name))
    return found


def ops_for(dtype: np.dtype[Any]) -> list[str]:
    """Return the operators that are defined for the dtype."""
    if dtype.kind == "c":
        return ["sum", "avg"]
    bitwise = {"band", "bor", "bxor"} if dtype.kind in "fV" else set()  # V: NumPy's kind of bfloat16
    return [op for op in _core.reduce_ops() if op not in bitwise]


def contribution(rank: int, count: int, dtype: np.dtype[Any], salt: int = 0) -> Array:
    """Return what `rank` puts in: small whole numbers, so that every sum and product is exact."""
    numbers = (np.arange(count) * 7 + rank * 5 + salt * 3) % 11
    if dtype.kind == "b":
        return numbers % 3 == 0
    return (numbers % 3 if dtype.kind == "u" else numbers % 3 - 1).astype(dtype)


_REDUCTIONS: dict[str, Callable[[Array], Array]] = {
    "sum": lambda rows: rows.sum(0, dtype=rows.dtype),
    "product": lambda rows: rows.prod(0, dtype=rows.dtype),
    "min": lambda rows: rows.min(0),
    "max": lambda rows: rows.max(0),
    "band": lambda rows: np.bitwise_and.reduce(rows),
    "bor": lambda rows: np.bitwise_or.reduce(rows),
    "bxor": lambda rows: np.bitwise_xor.reduce(rows),
}


def reduced(op: str, ranks: int, count: int, dtype: np.dtype[Any], salt: int = 0) -> Array:
    """Return what combining all contributions gives."""
    rows = np.stack([contribution(rank, count, dtype, salt) for rank in range(ranks)])
    if op != "avg":
        return _REDUCTIONS[op](rows)
    if dtype.kind == "b":
        return rows.any(0)
    exact = rows.astype(np.complex128 if dtype.kind == "c" else np.float64).sum(0) / ranks
    return (np.trunc(exact) if dtype.kind in "iu" else exact).astype(dtype)


def same(result: Array, expected: Array) -> bool:
    """Whether two arrays are equal, up to the rounding of a division."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return False
    if result.dtype.kind in "fc":
        return bool(np.allclose(result, expected, rtol=2e-3 if result.dtype.itemsize == 2 else 1e-6, atol=0))
    return bool(np.array_equal(result, expected))

# SPDX-License-Identifier: Apache-2.0
"""A rank whose buffers are NumPy arrays."""

from typing import Any

import numpy as np

from braid._bench.ranks.contestant_rank import ContestantRank, unsigned
from braid._bench.ranks.pattern import Bits, Values


class ArrayRank(ContestantRank):
    """What braid.Communicator and MPI share: memory, but no calls."""

    def empty(self, count: int, dtype: str) -> Any:
        """Return an uninitialised array."""
        return np.empty(count, _dtype(dtype))

    def bits(self, buffer: Any) -> Bits:
        """Return a view."""
        array: Bits = buffer.view(unsigned(str(buffer.dtype)))
        return array

    def encode(self, values: Values, dtype: str) -> Bits:
        """Convert by NumPy."""
        return self.bits(values.astype(_dtype(dtype)))


def _dtype(name: str) -> np.dtype[Any]:
    if name.startswith(("bfloat", "float8")):
        try:
            import ml_dtypes
        except ImportError:
            raise RuntimeError(f"NumPy has no {name} without ml_dtypes (pip install ml_dtypes)") from None
        name = getattr(ml_dtypes, name)
    return np.dtype(name)

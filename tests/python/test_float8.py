# SPDX-License-Identifier: Apache-2.0
"""The 8-bit floats of torch and of the core, over every pair: the same numbers, rounding and overflow."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from braid import _core

OPERATORS = {"sum": torch.add, "product": torch.mul, "min": torch.minimum, "max": torch.maximum}


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("op", OPERATORS)
def test_float8_is_that_of_torch(dtype: str, op: str) -> None:
    bits = np.arange(256, dtype=np.uint8)
    pairs = [bits.repeat(256), np.tile(bits, 256)]
    a, b = (torch.from_numpy(p.copy()).view(getattr(torch, dtype)).float() for p in pairs)
    exact = OPERATORS[op](a, b)
    expected = exact.to(getattr(torch, dtype)).view(torch.uint8).numpy()
    expected[exact.isnan().numpy()] = 0x7F  # torch keeps the sign of a NaN
    zero = (exact == 0).numpy() if op in ("min", "max") else np.False_  # of min and max torch leaves its sign open

    arrays = [[p] for p in pairs]
    _core.rehearse(_core.plan("all_reduce", "direct", 2), arrays, arrays, dtype, op)
    np.testing.assert_array_equal(np.where(zero, 0, arrays[0][0]), np.where(zero, 0, expected))

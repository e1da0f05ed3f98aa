# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import check_dtypes
import pytest

pytestmark = pytest.mark.unit

TEXT = """
import torch
a = torch.zeros(3)
b = torch.zeros(3, dtype=torch.float32)
c = torch.full(
    (2,), 1.0)
d = torch.ones(3, **options)
e = other.zeros(3)
f = a.new_zeros(3)
"""


def test_tensors_without_a_dtype_are_found(tmp_path: Path) -> None:
    assert check_dtypes.without_dtype(TEXT) == [3, 5]
    folder = tmp_path / "python" / "braid" / "deep"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text(TEXT)
    assert [line.split(": ")[0] for line in check_dtypes.check(tmp_path)] == [
        "python/braid/deep/one.py:3",
        "python/braid/deep/one.py:5",
    ]

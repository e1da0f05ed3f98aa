# SPDX-License-Identifier: Apache-2.0
"""Tests that need a GPU: skipped where there is none, and told why."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import braid.cuda
import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "multiprocess"))  # ranks.py, arrays.py

import ranks

_WHY_NOT = braid.cuda.why_unavailable()

# What else it imports may use the GPU, and a process that was forked after that cannot. Without a GPU all stays:
# that ranks of other folders' tests imported it one by one took three fifths of all tests' time.
if _WHY_NOT is None:
    ranks.PRELOADED[:] = ["numpy", "pytest", "torch"]


@pytest.fixture(autouse=True)
def leave_a_broken_context() -> Iterator[None]:
    """After a kernel's fault every call fails in its process. pytest-xdist starts another, and names the test."""
    yield
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        if "PYTEST_XDIST_WORKER" not in os.environ:
            raise
        print(error, file=sys.stderr, flush=True)
        os._exit(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if "tests/gpu/" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)
            if _WHY_NOT is not None:
                item.add_marker(pytest.mark.skip(reason=_WHY_NOT))

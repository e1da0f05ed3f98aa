# SPDX-License-Identifier: Apache-2.0
"""Tests that need a GPU: skipped where there is none, and told why."""

import braid.cuda
import pytest

_WHY_NOT = braid.cuda.why_unavailable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if "tests/gpu/" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)
            if _WHY_NOT is not None:
                item.add_marker(pytest.mark.skip(reason=_WHY_NOT))

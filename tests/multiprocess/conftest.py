# SPDX-License-Identifier: Apache-2.0
"""Lets the tests, and the rank processes they start, import ranks.py."""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.append(str(HERE.parent / "python"))  # event_simulation.py

# Where Python is unbuffered, lines of ranks that share a pipe run into each other.
os.environ.pop("PYTHONUNBUFFERED", None)


def pytest_collection_finish(session: pytest.Session) -> None:
    if any(HERE in item.path.parents for item in session.items) and not session.config.option.collectonly:
        from ranks import prepare_ranks

        prepare_ranks()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # Every test that names a wire runs over each.
    if "wire" in metafunc.fixturenames:
        marks = [pytest.mark.long] if metafunc.definition.get_closest_marker("long_over_tcp") else []
        metafunc.parametrize("wire", ["shm", pytest.param("tcp", marks=marks)])
